"""Test that failures of background tasks are raised, and that the tasks start again after growing pauses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

import pytest

from tests.tidelog.clients import seconds
from tests.virtual_time import on_virtual_time
from tidelog.client.tasks.background import Background, SupervisedTask
from tidelog.errors import InternalError, NoBrokersError


def a_background() -> Background:
    return Background(lambda attempt: min(100 * 2**attempt, 1000))


class Work:
    """A loop that notes when it begins, and ends as the test requests."""

    def __init__(self) -> None:
        self.begun_s: list[float] = []
        self.failure: Exception | None = None
        self.lasts_s = 0.0

    async def __call__(self) -> None:
        self.begun_s.append(seconds())
        await asyncio.sleep(self.lasts_s)
        if self.failure is not None:
            raise self.failure
        await asyncio.Event().wait()

    @property
    def pauses_s(self) -> list[float]:
        pairs = zip(self.begun_s, self.begun_s[1:], strict=False)
        return [round(after - before - self.lasts_s, 3) for before, after in pairs]


async def _raising(error: Exception) -> None:
    raise error


@on_virtual_time
async def test_failure_of_a_task_is_raised_once_with_its_cause() -> None:
    background = a_background()
    cause = KeyError("offset")
    background.run("the fetch from broker 1", _raising(cause))
    assert not background.has_failed
    await asyncio.sleep(0.01)
    assert background.has_failed
    with pytest.raises(
        InternalError, match=r"the fetch from broker 1 failed unexpectedly: KeyError\('offset'\)"
    ) as raised:
        background.raise_failure()
    assert raised.value.__cause__ is cause
    background.raise_failure()  # nothing is left to raise


@on_virtual_time
async def test_foreseen_error_of_a_task_concerns_its_waiters_alone() -> None:
    background = a_background()
    task = background.run("the connection", _raising(NoBrokersError("none")), foreseen=(NoBrokersError,))
    with pytest.raises(NoBrokersError):
        await task
    assert not background.has_failed


@on_virtual_time
async def test_failure_wakes_the_calls_that_wait() -> None:
    background, woken = a_background(), asyncio.Event()
    background.subscribe(woken.set)
    background.run("the fetch", _raising(ValueError("x")))
    await asyncio.wait_for(woken.wait(), 1)


@on_virtual_time
async def test_kept_task_that_fails_starts_again_after_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    background, work = a_background(), Work()
    work.failure = ValueError("x")
    kept = SupervisedTask(background, "the heartbeats", work)
    with caplog.at_level(logging.INFO):
        kept.start()
        await asyncio.sleep(4)
    assert work.pauses_s[:6] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    (line,) = [record for record in caplog.records if record.name == "tidelog.client.tasks.background"]
    assert "the heartbeats failed unexpectedly" in line.getMessage() and line.exc_info is not None
    with pytest.raises(InternalError, match="the heartbeats"):
        background.raise_failure()
    await kept.stop()


@on_virtual_time
async def test_kept_task_that_ran_for_long_is_restarted_soon_and_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background, work = a_background(), Work()
    work.failure, work.lasts_s = ValueError("x"), 60
    kept = SupervisedTask(background, "the heartbeats", work)
    kept.start()
    await asyncio.sleep(200)
    assert work.pauses_s == [0.1, 0.1, 0.1]
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 3
    await kept.stop()


@on_virtual_time
async def test_kept_task_that_is_cancelled_from_outside_runs_again() -> None:
    background, work, before = a_background(), Work(), asyncio.all_tasks()
    kept = SupervisedTask(background, "the heartbeats", work)
    kept.start()
    await asyncio.sleep(1)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await asyncio.sleep(0.01)
    assert not kept.is_running
    await asyncio.sleep(0.2)
    assert kept.is_running and len(work.begun_s) == 2
    assert not background.has_failed, "a cancellation is no defect"
    await kept.stop()


@pytest.mark.parametrize("after_s", [0.5, 0.05])
@on_virtual_time
async def test_kept_task_that_was_stopped_does_not_start_again(after_s: float) -> None:
    background, work = a_background(), Work()
    work.failure, work.lasts_s = ValueError("x"), 0.1
    kept = SupervisedTask(background, "the heartbeats", work)
    kept.start()
    await asyncio.sleep(after_s)
    await kept.stop()
    begun = len(work.begun_s)
    await asyncio.sleep(10)
    assert len(work.begun_s) == begun and not kept.is_running


@on_virtual_time
async def test_kept_task_that_starts_twice_runs_once() -> None:
    background, work = a_background(), Work()
    kept = SupervisedTask(background, "the heartbeats", work)
    kept.start()
    kept.start()
    await asyncio.sleep(1)
    assert len(work.begun_s) == 1
    await kept.stop()


def test_end_of_asyncio_run_starts_no_kept_task_again() -> None:
    work = Work()

    async def program() -> None:
        SupervisedTask(a_background(), "the heartbeats", work).start()
        await asyncio.sleep(0)

    asyncio.run(program())
    assert len(work.begun_s) == 1


@pytest.mark.parametrize("error", [NoBrokersError("none"), KeyError("x")])
@on_virtual_time
async def test_cancelled_tasks_of_a_background_end(error: Exception) -> None:
    background = a_background()

    async def wait(begin: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await begin()

    task = background.run("the fetch", wait(lambda: _raising(error)))
    await asyncio.sleep(0)
    (cancelled,) = background.cancel()
    assert cancelled is task
    await asyncio.gather(task, return_exceptions=True)
    assert background.cancel() == []

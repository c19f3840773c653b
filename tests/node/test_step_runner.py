"""Work in steps on an event loop: quick parts run inline, long steps on threads, and other requests run in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from node.runtime.step_runner import StepRunner
from storage.steps import PAUSE, SteppedWork, Steps, run_steps, steps_until_change
from tests.virtual_time import on_virtual_time
from tidelog.errors import RequestTimedOutError


async def on_a_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Make the call after a second in which other coroutines run."""
    await asyncio.sleep(1)
    return function(*arguments)


def pausing(name: str, done: list[str], pauses: int = 3) -> Steps[str]:
    for number in range(pauses):
        done.append(f"{name}{number}")
        yield PAUSE
    return name


def halved(number: int) -> Steps[str]:
    outcome = yield partial(divmod, 8, number)
    try:
        return f"{outcome.get()[0]} times"
    except ZeroDivisionError:
        return "never"


def no_check() -> None:
    pass


@on_virtual_time
async def test_work_without_steps_needs_no_slot() -> None:
    runner, done = StepRunner(on_a_thread, at_once=1), list[str]()
    waiting = asyncio.ensure_future(runner.finish(SteppedWork(halved(2)), no_check))
    await asyncio.sleep(0.5)
    assert await runner.finish(SteppedWork(pausing("a", done, pauses=0)), no_check) == "a"
    assert not waiting.done()
    assert await waiting == "4 times"


@on_virtual_time
async def test_work_pauses_in_turns_with_other_work_and_other_requests() -> None:
    runner, done = StepRunner(on_a_thread, at_once=1), list[str]()
    both = [asyncio.ensure_future(runner.finish(SteppedWork(pausing(name, done)), no_check)) for name in "ab"]
    while not all(each.done() for each in both):
        done.append("-")
        await asyncio.sleep(0)
    assert [each.result() for each in both] == ["a", "b"]
    text = "".join(done)
    assert text.replace("-", "") == "a0b0a1b1a2b2", "neither waits for the other's end"
    assert [text.count(f"{step}-") for step in ("b0", "a1", "b1", "a2")] == [1] * 4, "other requests run after a step"


@on_virtual_time
async def test_at_most_so_many_long_steps_run_at_once() -> None:
    runner, loop = StepRunner(on_a_thread, at_once=2), asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(runner.finish(SteppedWork(halved(2)), no_check) for _ in range(5)))
    assert loop.time() - began == pytest.approx(3)


@on_virtual_time
async def test_error_of_a_step_is_raised_inside_the_work() -> None:
    runner = StepRunner(on_a_thread, at_once=1)
    assert await runner.finish(SteppedWork(halved(0)), no_check) == "never"
    assert run_steps(halved(0)) == "never"
    assert run_steps(halved(4)) == "2 times"


@pytest.mark.parametrize("late_at", [0, 1], ids=["before the step", "after the step"])
@on_virtual_time
async def test_work_ends_at_its_deadline(late_at: int) -> None:
    ended: list[str] = []
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks > late_at:
            raise RequestTimedOutError

    def work() -> Steps[None]:
        try:
            yield PAUSE
            ended.append("continued")
        finally:
            ended.append("ended")

    runner = StepRunner(on_a_thread, at_once=1)
    with pytest.raises(RequestTimedOutError):
        await runner.finish(SteppedWork(work()), check)
    assert ended == ["ended"]
    assert await runner.finish(SteppedWork(halved(2)), no_check) == "4 times", "the slot is free again"


def test_steps_end_early_once_something_has_changed() -> None:
    done: list[str] = []
    versions = iter([1, 1, 2])
    work = run_steps(steps_until_change(pausing("a", done), lambda: next(versions)))
    assert not work.finished and done == ["a0", "a1"]
    work = run_steps(steps_until_change(pausing("b", done), lambda: 1))
    assert work.finished and work.result == "b"

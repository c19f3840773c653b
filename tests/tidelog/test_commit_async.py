"""Test `commit_async` of the synchronous consumer: its future, its callback, its order, and `close`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from tests.tidelog.clients import a_consumer, in_memory, put, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog import Consumer, OffsetAndMetadata, TopicPartition
from tidelog.client.consumer.begun_commits import MOST_BEGUN, BegunCommit, BegunCommits
from tidelog.errors import (
    ArgumentTypeError,
    ClosedError,
    InvalidGroupIdError,
    OffsetMetadataTooLargeError,
    OverloadedError,
)

P0 = TopicPartition("t", 0)


def at(offset: int, metadata: str = "") -> dict[TopicPartition, OffsetAndMetadata]:
    return {P0: OffsetAndMetadata(offset, metadata)}


class Notes:
    """The calls of a callback, in their order, each with its thread."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, BaseException | None]] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, offsets: Any, error: BaseException | None) -> None:
        self.calls.append((offsets[P0].offset, error))
        self.threads.add(threading.current_thread())


@contextmanager
def a_reader(**options: Any) -> Iterator[tuple[Consumer, FakeCluster]]:
    """Yield a consumer of group "g" that has read two of four records, with its cluster."""
    cluster = FakeCluster()
    put(*cluster.create("t"), b"0", b"1", b"2", b"3")
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "group_id": "g", **options}
    with in_memory(Consumer, cluster, **options) as consumer:
        consumer.assign([P0])
        assert len(consumer.consume(2, 10_000)) == 2
        yield consumer, cluster


def test_future_ends_when_the_positions_are_committed() -> None:
    with a_reader() as (consumer, _):
        assert consumer.commit_async().result(timeout=10) is None
        assert consumer.committed(P0) == 2


def test_commit_has_the_positions_of_the_call() -> None:
    with a_reader() as (consumer, cluster):
        cluster.coordinator.loading.add("g")
        outcome = consumer.commit_async()
        assert len(consumer.consume(2, 10_000)) == 2
        assert not outcome.done()
        cluster.coordinator.loading.clear()
        outcome.result(timeout=10)
        assert consumer.committed(P0) == 2


def test_callback_is_called_by_a_later_poll_in_its_thread() -> None:
    notes = Notes()
    with a_reader() as (consumer, _):
        consumer.commit_async(at(1), notes).result(timeout=10)
        assert notes.calls == []
        consumer.poll()
        assert notes.calls == [(1, None)] and notes.threads == {threading.current_thread()}
        consumer.poll()
        assert len(notes.calls) == 1


def test_commit_keeps_the_order_and_runs_earlier_callbacks() -> None:
    notes = Notes()
    with a_reader() as (consumer, cluster):
        cluster.coordinator.loading.add("g")
        outcomes = [consumer.commit_async(at(offset), notes) for offset in (3, 1, 4)]
        assert not any(each.done() for each in outcomes)
        cluster.coordinator.loading.clear()
        consumer.commit(at(2))
        assert notes.calls == [(3, None), (1, None), (4, None)]
        assert [offset for _, _, offset in cluster.coordinator.history] == [3, 1, 4, 2]


def test_callback_may_use_the_consumer() -> None:
    with a_reader() as (consumer, _):
        seen: list[int] = []
        consumer.commit_async(at(1), lambda offsets, error: seen.append(consumer.position(P0))).result(timeout=10)
        consumer.poll()
        assert seen[0] == 2


def test_callback_gets_the_error_and_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes()
    with a_reader() as (consumer, _):
        outcome = consumer.commit_async(at(1, "x" * 40_000), notes)
        with pytest.raises(OffsetMetadataTooLargeError):
            outcome.result(timeout=10)
        consumer.poll()
        ((offset, error),) = notes.calls
        assert offset == 1 and isinstance(error, OffsetMetadataTooLargeError)
    assert caplog.messages == []


def test_error_without_a_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), a_reader() as (consumer, _):
        assert consumer.commit_async(at(1, "x" * 40_000)).exception(timeout=10) is not None
    assert [each.partition(",")[0] for each in caplog.messages] == [
        "commit_async: t-0: metadata of 40000 bytes: must be at most 32767"
    ]


def test_close_waits_for_begun_commits_and_runs_their_callbacks() -> None:
    notes = Notes()
    with a_reader() as (consumer, cluster):
        cluster.coordinator.loading.add("g")
        consumer.commit_async(callback=notes)
        threading.Timer(0.1, cluster.coordinator.loading.clear).start()
    assert notes.calls == [(2, None)]
    assert cluster.coordinator.committed["g"][P0].committed_offset == 2


@on_virtual_time
async def test_close_waits_for_begun_commits_within_its_timeout() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.coordinator.loading.add("g")
    consumer = a_consumer(cluster, group_id="g")
    commit = consumer._begin_commit(at(1), logs_error=False)
    began = seconds()
    await consumer.close(timeout_ms=3000)
    assert seconds() - began == pytest.approx(3, abs=0.5)
    assert isinstance(commit.outcome.exception(0), ClosedError)


@on_virtual_time
async def test_future_of_a_commit_cannot_be_cancelled() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_consumer(cluster, group_id="g") as consumer:
        commit = consumer._begin_commit(at(1), logs_error=True)
        assert not commit.outcome.cancel()
        await asyncio.wrap_future(commit.outcome)
        assert await consumer.committed(P0) == 1


def test_callback_of_the_future_does_not_close_the_consumer() -> None:
    """A callback of the future runs on the I/O thread. `close` waits for that thread to end, and would wait forever."""
    with a_reader() as (consumer, cluster):
        cluster.coordinator.loading.add("g")
        outcome, refusals = consumer.commit_async(), []
        ended = threading.Event()

        def close(_: Any) -> None:
            try:
                consumer.close()
            except RuntimeError as error:
                refusals.append(str(error))
            ended.set()

        outcome.add_done_callback(close)
        cluster.coordinator.loading.clear()
        assert ended.wait(10)
        assert len(refusals) == 1 and "must not call the client" in refusals[0]
        assert consumer.committed(P0) == 2, "the consumer is open"


def test_commit_async_without_a_group_or_with_wrong_values_raises() -> None:
    with a_reader() as (consumer, _):
        with pytest.raises(ArgumentTypeError, match="offsets"):
            consumer.commit_async({P0: 5})  # type: ignore[dict-item]
        with pytest.raises(ArgumentTypeError, match="callback must be a function, not 5"):
            consumer.commit_async(callback=5)  # type: ignore[arg-type]
    with pytest.raises(ClosedError):
        consumer.commit_async()
    with a_reader(group_id=None) as (consumer, _), pytest.raises(InvalidGroupIdError, match="commit_async needs a gr"):
        consumer.commit_async()


def test_callbacks_after_one_that_fails_come_with_the_next_call() -> None:
    commits, seen = BegunCommits(), []

    def fail(offsets: Any, error: Any) -> None:
        raise RuntimeError("of the user")

    done: Future[None] = Future()
    done.set_result(None)
    commits.add(BegunCommit(at(1), done), fail)
    commits.add(BegunCommit(at(2), done), lambda offsets, error: seen.append(offsets))
    with pytest.raises(RuntimeError, match="of the user"):
        commits.run_callbacks()
    assert seen == []
    commits.run_callbacks()
    assert seen == [at(2)]


def test_number_of_commits_without_an_outcome_is_bounded() -> None:
    commits = BegunCommits()
    outcomes: list[Future[None]] = [Future() for _ in range(MOST_BEGUN)]
    for each in outcomes:
        commits.require_space()
        commits.add(BegunCommit(at(1), each), None)
    with pytest.raises(OverloadedError, match="1000 commits have no outcome yet"):
        commits.require_space()
    outcomes[0].set_result(None)
    commits.run_callbacks()
    commits.require_space()

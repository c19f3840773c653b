"""Define what `send` returns: a future for one record of a batch whose outcome is not known yet.

A record costs one small object. Callbacks and waiting threads are attached to its batch. The records of a batch settle
all at once, or part by part if the broker did not accept them together.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from tidelog import arguments
from tidelog.clock import bearable_s
from tidelog.errors import TidelogError, TimeoutError
from tidelog.model import NO_TIMESTAMP, RecordMetadata, TopicPartition
from tidelog.quantities import count_of

_log = logging.getLogger(__name__)


class RecordOutcome(NamedTuple):
    """The outcome of consecutive records of a batch, from `first_index` up to the next settlement.

    base_offset          offset of the first record; −1 if the broker did not report it (acks=0, or an old repetition)
    log_append_time_ms   −1 unless the topic has LogAppendTime timestamps
    error                why the records failed; None if they are stored
    may_be_stored        an attempt may have been appended although the records failed
    """

    first_index: int
    base_offset: int
    log_append_time_ms: int
    error: TidelogError | None
    may_be_stored: bool = False


_first_index = attrgetter("first_index")


class BatchOutcome:
    """The outcome of the records that were collected as one batch, even if the batch was split.

    settled_count   the number of records whose outcome is known; records settle in their order
    """

    __slots__ = ("_lock", "_record_outcomes", "_waiting", "settled_count", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, lock: threading.Lock) -> None:
        self.topic_partition = topic_partition
        self.settled_count = 0
        self._lock = lock
        self._record_outcomes: list[RecordOutcome] = []
        self._waiting: list[tuple[int, Callable[[], object]]] = []

    def of(self, index: int) -> RecordOutcome:
        """Return the outcome that includes the record at `index`, which must be settled."""
        last = self._record_outcomes[-1]
        if last.first_index <= index:
            return last
        return self._record_outcomes[bisect_right(self._record_outcomes, index, key=_first_index) - 1]

    def first_failure(self) -> RecordOutcome | None:
        """Return the outcome of the first settled record that failed; None if none has failed."""
        return next((each for each in self._record_outcomes if each.error is not None), None)

    def record_outcomes(self, first_index: int, count: int) -> Iterator[tuple[int, RecordOutcome]]:
        """Yield the outcomes of these settled records, each with the number of records that share it."""
        at = bisect_right(self._record_outcomes, first_index, key=_first_index)
        end = first_index + count
        while first_index < end:
            later = self._record_outcomes[at].first_index if at < len(self._record_outcomes) else end
            yield min(later, end) - first_index, self._record_outcomes[at - 1]
            first_index, at = later, at + 1

    def when_settled(self, index: int, callback: Callable[[], object]) -> None:
        """Have the next `run_callbacks` after the record at `index` has settled call `callback` once.

        The call comes on the thread of that `run_callbacks`. If the record is settled already, call `callback` now. An
        exception of `callback` is logged.
        """
        with self._lock:
            if index >= self.settled_count:
                self._waiting.append((index, callback))
                return
        _guarded(callback)

    def forget(self, callback: Callable[[], object]) -> None:
        """Remove a callback of `when_settled`, because its caller has stopped waiting. A `run_callbacks` that already
        runs on another thread may still call it.
        """
        with self._lock:
            self._waiting = [each for each in self._waiting if each[1] is not callback]

    def settle(
        self,
        last_index: int,
        base_offset: int,
        log_append_time_ms: int,
        error: TidelogError | None,
        *,
        may_be_stored: bool = False,
    ) -> None:
        """Settle all unsettled records up to `last_index` with one outcome; from now on futures show it.

        The caller must call `run_callbacks` afterwards, which runs the callbacks.
        """
        with self._lock:
            first_index = self.settled_count
            self._record_outcomes.append(
                RecordOutcome(first_index, base_offset, log_append_time_ms, error, may_be_stored)
            )
            self.settled_count = last_index + 1

    def run_callbacks(self) -> None:
        """Call the callbacks of settled records, each once, on this thread."""
        with self._lock:
            waiting, settled_count = self._waiting, self.settled_count
            self._waiting = [each for each in waiting if each[0] >= settled_count]
        for index, callback in waiting:
            if index < settled_count:
                _guarded(callback)


class RecordFuture:
    """The outcome of one record; wait for it with `get` or `await`.

    Callbacks run on the I/O thread (in `tidelog.aio` on the event loop), or on a thread whose `close` fails the record.
    A callback must not block. If the outcome is known already, the callback runs at once in the caller.

    Example:

        future = producer.send("orders", b"9 books")
        future.add_errback(lambda error: print("not stored:", error))
        print(future.get(timeout=10).offset)
    """

    __slots__ = ("_index", "_outcome", "_timestamp_ms")

    def __init__(self, outcome: BatchOutcome, index: int, timestamp_ms: int) -> None:
        self._outcome = outcome
        self._index = index
        self._timestamp_ms = timestamp_ms

    @property
    def partition(self) -> int:
        """The number of the record's partition, which is known before the outcome."""
        return self._outcome.topic_partition.partition

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._index < self._outcome.settled_count

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the record's partition and offset, and return them; raise the record's error if it failed.

        TimeoutError after `timeout` seconds (None: no limit); the record is still being sent.
        """
        self._wait(timeout)
        return self._place()

    result = get

    def exception(self, timeout: float | None = None) -> TidelogError | None:
        """Wait like `get`; return the record's error, or None if it was acknowledged.

        TimeoutError after `timeout` seconds is raised.
        """
        self._wait(timeout)
        return self._error()

    def succeeded(self) -> bool:
        """Return whether the record was acknowledged; False also while the outcome is not known."""
        return self._index < self._outcome.settled_count and self._error() is None

    def failed(self) -> bool:
        """Return whether the record has failed; False also while the outcome is not known."""
        return self.done() and self._error() is not None

    def may_be_stored(self) -> bool:
        """Return whether a failed record may still be in the log, now or later, because an attempt has no known end."""
        return self.failed() and self._record_outcome().may_be_stored

    def as_run(self) -> RecordRun:
        """Return a run that holds this record alone, and that later records may join."""
        return RecordRun(self._outcome, self._index, 1)

    def join(self, run: RecordRun) -> bool:
        """Add the record to a run that ends right before it in the same batch, and return True.

        Return False, and change nothing, if the run ends elsewhere.
        """
        if run._outcome is not self._outcome or run._first_index + run.record_count != self._index:
            return False
        run.record_count += 1
        return True

    def add_callback(self, function: Callable[..., Any], *args: Any) -> RecordFuture:
        """Call `function(*args, metadata)` when the record is acknowledged, and never if it fails; return this future.

        The call comes on the thread that the class names, or now and on this thread if the record is acknowledged
        already. Exceptions of
        `function` are logged.
        """
        arguments.function("function", function)
        self._outcome.when_settled(self._index, lambda: self._error() is None and function(*args, self._place()))
        return self

    def add_errback(self, function: Callable[..., Any], *args: Any) -> RecordFuture:
        """Call `function(*args, error)` when the record fails, and never if it is acknowledged; return this future.

        The call comes on the thread that the class names, or now and on this thread if the record has failed
        already. Exceptions of
        `function` are logged.
        """
        arguments.function("function", function)
        self._outcome.when_settled(self._index, lambda: self.failed() and function(*args, self._error()))
        return self

    async def wait_done(self) -> None:
        """Wait until the outcome is known, success or failure; on any event loop."""
        if not self.done():
            loop = asyncio.get_running_loop()
            arrived = asyncio.Event()

            def wake() -> None:
                loop.call_soon_threadsafe(arrived.set)

            self._outcome.when_settled(self._index, wake)
            try:
                await arrived.wait()
            finally:
                if not self.done():
                    self._outcome.forget(wake)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from self.wait_done().__await__()
        return self._place()

    def __repr__(self) -> str:
        state = "pending"
        if self.done():
            error = self._error()
            state = f"offset={self._place().offset}" if error is None else f"failed: {error!r}"
        return f"<{type(self).__name__} {self._outcome.topic_partition} {state}>"

    def _wait(self, timeout: float | None) -> None:
        time_limit_s = None if timeout is None else arguments.timeout_s("timeout", timeout)
        if self._index < self._outcome.settled_count:
            return
        # A bare lock, because an Event costs three objects and as many more switches between threads.
        pending = threading.Lock()
        pending.acquire()
        release, arrived = pending.release, False
        self._outcome.when_settled(self._index, release)
        try:
            arrived = pending.acquire(timeout=bearable_s(time_limit_s))
        finally:
            if not arrived:
                self._outcome.forget(release)
        if not arrived:
            raise TimeoutError(f"{self._outcome.topic_partition}: no outcome after {timeout} s; it is still being sent")

    def _record_outcome(self) -> RecordOutcome:
        return self._outcome.of(self._index)

    def _error(self) -> TidelogError | None:
        return self._record_outcome().error

    def _place(self) -> RecordMetadata:
        first_index, base_offset, stamped, error, _ = self._record_outcome()
        if error is not None:
            raise error
        topic, partition = self._outcome.topic_partition
        offset = base_offset + self._index - first_index if base_offset >= 0 else -1
        return RecordMetadata(topic, partition, offset, self._timestamp_ms if stamped == NO_TIMESTAMP else stamped)


class BatchFuture(RecordFuture):
    """The future of a whole encoded batch: the offset of its last record, or the error of the first that failed."""

    __slots__ = ()

    def _record_outcome(self) -> RecordOutcome:
        return self._outcome.first_failure() or super()._record_outcome()


class RunPart(NamedTuple):
    """Consecutive records with one outcome: stored from `base_offset` on (−1: not known), or failed with `error`."""

    record_count: int
    base_offset: int
    error: TidelogError | None


class RecordRun:
    """Consecutive records of one batch that were sent together. `Producer.flush` waits for their outcomes.

    record_count   the number of records

    Example:

        values, sent = [b"9 books"] * 1_000, 0
        while sent < len(values):
            sent += producer.send_values("orders", values, sent).record_count
        producer.flush()
    """

    __slots__ = ("_first_index", "_outcome", "record_count")

    def __init__(self, outcome: BatchOutcome, first_index: int, record_count: int) -> None:
        self._outcome = outcome
        self._first_index = first_index
        self.record_count = record_count

    @property
    def partition(self) -> int:
        """The number of the partition to which all records of this run are sent."""
        return self._outcome.topic_partition.partition

    def done(self) -> bool:
        """Return whether the outcome of every record is known."""
        return self._first_index + self.record_count <= self._outcome.settled_count

    def parts(self) -> list[RunPart]:
        """Return the known outcomes, which are those of the first records, because outcomes become known in order."""
        parts: list[RunPart] = []
        index = self._first_index
        settled = min(self.record_count, self._outcome.settled_count - index)
        for count, (first_index, base_offset, _, error, _) in self._outcome.record_outcomes(index, settled):
            known = error is None and base_offset >= 0
            parts.append(RunPart(count, base_offset + index - first_index if known else -1, error))
            index += count
        return parts

    def __repr__(self) -> str:
        known = sum(part.record_count for part in self.parts())
        return f"<RecordRun {self._outcome.topic_partition} {count_of(self.record_count, 'record')}, {known} settled>"


def _guarded(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        _log.exception("a callback of a record's future failed")

"""What `send` returns: a record's place in a batch whose outcome is still open.

A record costs one small object; everything that waits is attached to its batch, which settles once for all of them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any

from tidelog.errors import TidelogError, TimeoutError
from tidelog.model import NO_TIMESTAMP, RecordMetadata, TopicPartition

_log = logging.getLogger(__name__)


class BatchOutcome:
    """The part of a batch that outlives it: is it settled, where, or why not.

    base_offset          −1 where the broker did not say (acks=0, or a repetition that it no longer remembers)
    log_append_time_ms   −1 unless the broker stamped the records
    """

    __slots__ = ("_callbacks", "_lock", "base_offset", "error", "log_append_time_ms", "settled", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, lock: threading.Lock) -> None:
        self.topic_partition = topic_partition
        self.settled = False
        self.base_offset = -1
        self.log_append_time_ms = NO_TIMESTAMP
        self.error: TidelogError | None = None
        self._lock = lock
        self._callbacks: list[Callable[[], object]] = []

    def when_settled(self, callback: Callable[[], object]) -> None:
        """Call it once, on the I/O thread; here and now if all is settled already."""
        with self._lock:
            if not self.settled:
                self._callbacks.append(callback)
                return
        _guarded(callback)

    async def wait_settled(self) -> None:
        """Returns once it is settled; on any event loop."""
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()
        self.when_settled(lambda: loop.call_soon_threadsafe(arrived.set))
        await arrived.wait()

    def settle(self, base_offset: int, log_append_time_ms: int, error: TidelogError | None) -> None:
        """Once only: from here on it can be seen. Those who wait hear of it from `announce`, which must follow."""
        with self._lock:
            if self.settled:
                return
            self.base_offset = base_offset
            self.log_append_time_ms = log_append_time_ms
            self.error = error
            self.settled = True

    def announce(self) -> None:
        """Call those who wait, on this thread."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            _guarded(callback)


class RecordFuture:
    """A record on its way. Wait with `get`, or `await` it; callbacks run on the I/O thread and must not block."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: BatchOutcome, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.settled

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record stands; raises why it does not. `timeout` in seconds, then TimeoutError."""
        self._wait(timeout)
        return self._outcome()

    result = get

    def exception(self, timeout: float | None = None) -> TidelogError | None:
        """The error, or None for a record that was acknowledged. Waits like `get`."""
        self._wait(timeout)
        return self._batch.error

    def succeeded(self) -> bool:
        """Acknowledged."""
        return self._batch.settled and self._batch.error is None

    def failed(self) -> bool:
        """Given up."""
        return self._batch.error is not None

    def add_callback(self, function: Callable[..., Any], *args: Any) -> RecordFuture:
        """On success `function(*args, metadata)` is called."""
        self._batch.when_settled(lambda: self._batch.error is None and function(*args, self._outcome()))
        return self

    def add_errback(self, function: Callable[..., Any], *args: Any) -> RecordFuture:
        """On failure `function(*args, error)` is called."""
        self._batch.when_settled(lambda: self._batch.error is not None and function(*args, self._batch.error))
        return self

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._batch.settled:
            yield from self._batch.wait_settled().__await__()
        return self._outcome()

    def _wait(self, timeout: float | None) -> None:
        if self._batch.settled:
            return
        # A bare lock: an Event costs three objects and as many more switches between the threads.
        pending = threading.Lock()
        pending.acquire()
        self._batch.when_settled(pending.release)
        if not pending.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise TimeoutError(f"{self._batch.topic_partition}: no outcome after {timeout} s; it is still being sent")

    def _outcome(self) -> RecordMetadata:
        batch = self._batch
        if batch.error is not None:
            raise batch.error
        topic, partition = batch.topic_partition
        offset = batch.base_offset + self._index if batch.base_offset >= 0 else -1
        stamped = batch.log_append_time_ms
        return RecordMetadata(topic, partition, offset, self._timestamp_ms if stamped < 0 else stamped)


def _guarded(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        _log.exception("a callback of a record's future failed")

"""Flush logs whose topics set `flush.messages`, on threads.

Each log has at most one flush in progress. The next flush covers all batches that were appended meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from node.replication.replica import Replica
from node.runtime.thread_pool import thread_pool
from storage.descriptor_reserve import OutOfDescriptorsError
from tidelog.errors import StorageError
from tidelog.model import TopicPartition

#: The number of logs that are flushed at the same time. No other work uses these threads, so a slow disk delays only
#: flushes.
_THREADS = 8
#: The pause before a flush that got no file descriptor is retried. It is short because requests wait for the flush.
_RETRY_S = 0.2

#: Runs a flush outside the event loop.
OffloadFlush = Callable[[Callable[[], None]], Awaitable[None]]


class LogFlusher:
    """The flushes of one broker.

    on_flushed   called on the event loop after each flush
    on_error     called on the event loop when a flush has failed with its disk
    offload      runs a flush; None: on threads of this object
    """

    def __init__(
        self,
        on_flushed: Callable[[Replica], None],
        on_error: Callable[[StorageError, TopicPartition], None],
        offload: OffloadFlush | None = None,
    ) -> None:
        self._on_flushed = on_flushed
        self._on_error = on_error
        self._offload = offload or self._on_thread
        self._threads = thread_pool(_THREADS, "flush")
        self._in_progress: dict[Replica, asyncio.Task[None]] = {}
        self._closing = False

    def begin(self, replica: Replica) -> None:
        """Begin to flush the replica's log. The flush starts in the next turn of the event loop.

        So one flush covers all batches that are appended in the current turn. If a flush of this log is in progress,
        the next one follows it if the log must still be flushed.
        """
        if replica not in self._in_progress:
            self._in_progress[replica] = asyncio.get_running_loop().create_task(self._flush(replica))

    async def close(self) -> None:
        """Wait until all flushes in progress have ended. The caller must have stopped all appends."""
        self._closing = True
        await asyncio.gather(*self._in_progress.values(), return_exceptions=True)
        self._threads.shutdown(wait=False)

    async def _flush(self, replica: Replica) -> None:
        try:
            while True:
                log = replica.log
                try:
                    await self._offload(log.flush)
                except OutOfDescriptorsError:
                    if self._closing:
                        return
                    await asyncio.sleep(_RETRY_S)
                    continue
                except StorageError as error:
                    # After a move to another log directory the replica has another log, and this one is being deleted.
                    if replica.log is log:
                        self._on_error(error, replica.topic_partition)
                        return
                self._on_flushed(replica)
                if not replica.log.must_flush:
                    return
        finally:
            del self._in_progress[replica]

    async def _on_thread(self, flush: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, flush)

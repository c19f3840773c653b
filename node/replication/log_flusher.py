"""Has logs synced whose topics ask for it by number of records (`flush.messages`).

One sync of a log at a time, on a thread: what is appended meanwhile is covered by the next one, all together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from node.replication.replica import Replica
from storage.descriptor_reserve import OutOfDescriptorsError
from tidelog.errors import StorageError
from tidelog.model import TopicPartition

#: Logs that are synced at the same time. The threads are nobody else's, so that a slow disk delays syncs alone.
_THREADS = 8
#: Until a sync that got no file descriptor is tried again: somebody waits for it.
_AGAIN_S = 0.2

#: Runs a sync elsewhere than on the loop.
OffloadSync = Callable[[Callable[[], None]], Awaitable[None]]


class LogFlusher:
    """The syncs of one broker.

    on_synced   told after each one, on the loop
    on_error    told when one fails
    offload     threads of its own where it is None
    """

    def __init__(
        self,
        on_synced: Callable[[Replica], None],
        on_error: Callable[[StorageError, TopicPartition], None],
        offload: OffloadSync | None = None,
    ) -> None:
        self._on_synced = on_synced
        self._on_error = on_error
        self._offload = offload or self._on_thread
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="flush")
        self._under_way: dict[Replica, asyncio.Task[None]] = {}
        self._closing = False

    def begin(self, replica: Replica) -> None:
        """Have its log synced; in a later turn of the loop, so that it covers all that is appended in this one."""
        if replica not in self._under_way:
            self._under_way[replica] = asyncio.get_running_loop().create_task(self._sync(replica))

    async def close(self) -> None:
        """Returns when no sync is under way any more. Nothing may be appended by now."""
        self._closing = True
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        self._threads.shutdown(wait=False)

    async def _sync(self, replica: Replica) -> None:
        log = replica.log
        try:
            while True:
                try:
                    await self._offload(log.flush)
                except OutOfDescriptorsError:
                    if self._closing:
                        return
                    await asyncio.sleep(_AGAIN_S)
                    continue
                self._on_synced(replica)
                if not log.must_flush:
                    return
        except StorageError as error:
            self._on_error(error, replica.topic_partition)
        finally:
            del self._under_way[replica]

    async def _on_thread(self, flush: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, flush)

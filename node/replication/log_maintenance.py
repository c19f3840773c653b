"""Run the periodic work on logs: checkpoints, retention, flushes by time, compaction, removal of deleted files.

Each kind of work has its own interval; the settings have Kafka's names. The event loop owns the logs, so work that
changes them runs there in short steps. Work that waits for a disk runs on a few threads that no other work uses. After
each run the replica manager checks whether a log directory has failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Protocol, TypeVar

from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.runtime.thread_pool import thread_pool
from node.settings.dynamic_settings import DynamicSettings
from tidelog.client.tasks.async_event import Flag
from tidelog.clock import Clock
from tidelog.model import TopicPartition

log = logging.getLogger(__name__)

#: The number of logs that one step handles before the event loop may do other work.
_PARTITIONS_PER_STEP = 64
_REMOVAL_CHECK_MS = 1000
_EPOCHS_CHECK_MS = 1000
#: The kinds of work besides compaction that run on threads.
OTHER_WORK = 5
#: The longest timer. A setting of 2⁶³ − 1 ms means "never", and the event loop cannot wait for that long.
_LONGEST_PAUSE_S = 10 * 365 * 86_400

T = TypeVar("T")


class Checkpoints(Protocol):
    """The part of `storage.log_manager.LogManager` that writes checkpoints."""

    def checkpoint_recovery_points(self) -> None: ...
    def checkpoint_log_starts(self) -> None: ...
    @property
    def has_unwritten_epochs(self) -> bool: ...
    def write_epochs(self) -> None: ...


class Round(Protocol):
    """The part of `storage.log_maintenance.CleaningRound` that this loop uses."""

    def write_next(self) -> bool: ...
    def install(self, monotonic_ms: int) -> None: ...
    def end(self) -> bool: ...


class LogMaintenance(Protocol):
    """The part of storage's log maintenance that this loop uses."""

    def delete_old_segments(self, tp: TopicPartition, now_ms: int, high_watermark: int, monotonic_ms: int) -> int: ...
    def is_removal_due(self, monotonic_ms: int) -> bool: ...
    def forget_idle_producers(self, tp: TopicPartition, now_ms: int, expiration_ms: int) -> int: ...
    def remove_deleted(self, monotonic_ms: int) -> int: ...
    def flush_due(self, now_ms: int) -> int: ...
    def begin_cleaning(self, now_ms: int, upper_bounds: dict[TopicPartition, int]) -> Round | None: ...
    def stop(self) -> None: ...


class MaintenanceLoop:
    """The tasks of the periodic work. `stop` returns when no task and no thread runs any more."""

    def __init__(
        self,
        settings: DynamicSettings,
        replicas: ReplicaManager,
        checkpoints: Checkpoints,
        maintenance: LogMaintenance,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._checkpoints = checkpoints
        self._maintenance = maintenance
        self._clock = clock
        self._stopping = Flag()
        self._tasks: list[asyncio.Task[None]] = []
        cleaners = settings.static.log_cleaner_threads if settings.static.log_cleaner_enable else 0
        self._cleaners = cleaners
        # One thread for each kind of work, so that a disk that is slow with one kind delays no other.
        self._threads = thread_pool(cleaners + OTHER_WORK, "log-maintenance")

    def start(self) -> None:
        """Start all tasks on the running event loop, and return at once. Each first waits for its interval."""
        settings, checkpoints, maintenance = self._settings.static, self._checkpoints, self._maintenance
        every, on_thread = self._every, self._on_thread
        works: list[Coroutine[None, None, None]] = [
            every(settings.replica_high_watermark_checkpoint_interval_ms, self._replicas.checkpoint_high_watermarks),
            every(
                settings.log_flush_offset_checkpoint_interval_ms,
                lambda: on_thread(checkpoints.checkpoint_recovery_points),
            ),
            every(
                settings.log_flush_start_offset_checkpoint_interval_ms,
                lambda: on_thread(checkpoints.checkpoint_log_starts),
            ),
            every(
                settings.log_flush_scheduler_interval_ms,
                lambda: on_thread(lambda: maintenance.flush_due(self._clock.monotonic_ms())),
            ),
            every(settings.log_retention_check_interval_ms, self.delete_old_segments),
            every(settings.producer_id_expiration_check_interval_ms, self.forget_idle_producers),
            every(_REMOVAL_CHECK_MS, self.remove_deleted),
            every(_EPOCHS_CHECK_MS, self.write_epochs),
            *(self._keep_cleaning() for _ in range(self._cleaners)),
        ]
        self._tasks = [asyncio.get_running_loop().create_task(work) for work in works]

    async def stop(self) -> None:
        """Stop all tasks and wait for their end.

        Compaction ends at the next batch, and the removal of deleted logs after the current log. Other work that has
        begun is completed.
        """
        self._stopping.set()
        self._maintenance.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False)

    async def delete_old_segments(self) -> None:
        """Delete old segments of every replica as its settings say, but none that reaches beyond its high watermark."""
        async for replica in self._online():
            tp, high_watermark = replica.topic_partition, replica.partition.high_watermark
            now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
            if self._maintenance.delete_old_segments(tp, now_ms, high_watermark, monotonic_ms):
                self._replicas.log_start_rose(tp)

    async def remove_deleted(self) -> None:
        """Remove the files of deleted segments and logs whose delay has passed."""
        monotonic_ms = self._clock.monotonic_ms()
        if self._maintenance.is_removal_due(monotonic_ms):
            await self._on_thread(lambda: self._maintenance.remove_deleted(monotonic_ms))

    async def write_epochs(self) -> None:
        """Write the leader epochs that are not on disk yet, of all logs; do nothing if there are none."""
        if self._checkpoints.has_unwritten_epochs:
            await self._on_thread(self._checkpoints.write_epochs)

    async def forget_idle_producers(self) -> None:
        """Drop the state of producers that have not produced for `producer_id_expiration_ms` from every log.

        A producer that returns later starts a new sequence.
        """
        expiration_ms = self._settings.current.producer_id_expiration_ms
        async for replica in self._online():
            self._maintenance.forget_idle_producers(replica.topic_partition, self._clock.monotonic_ms(), expiration_ms)

    async def _online(self) -> AsyncIterator[Replica]:
        """Yield the replicas whose disk works, and let the event loop do other work between them.

        Each replica counts against the loop budget, so after slow work on one the next waits for a new turn.
        """
        loop_budget = self._replicas.loop_budget
        for count, replica in enumerate(list(self._replicas), 1):
            await loop_budget.yield_()
            if not replica.offline and self._replicas.get(replica.topic_partition) is replica:
                began_ms = self._clock.monotonic_ms()
                yield replica
                loop_budget.charge(self._clock.monotonic_ms() - began_ms)
            if count % _PARTITIONS_PER_STEP == 0:
                await asyncio.sleep(0)

    async def clean(self) -> bool:
        """Run one round of compaction. Return False if no log is worth compacting, or if the round failed."""
        bounds = {each.topic_partition: each.partition.high_watermark for each in self._replicas if not each.offline}
        round_ = self._maintenance.begin_cleaning(self._clock.now_ms(), bounds)
        if round_ is None:
            return False
        try:
            while await self._on_thread(round_.write_next):
                round_.install(self._clock.monotonic_ms())
        finally:
            went_well = round_.end()
        return went_well

    async def _keep_cleaning(self) -> None:
        await self._pause(self._settings.current.log_cleaner_backoff_ms)
        while not self._stopping.is_set():
            try:
                worthwhile = await self.clean()
            except Exception:
                log.exception("compaction failed")
                worthwhile = False
            self._replicas.notice_failures()
            if not worthwhile:
                await self._pause(self._settings.current.log_cleaner_backoff_ms)

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[object]]) -> None:
        while not await self._pause(interval_ms):
            try:
                await work()
            except Exception:
                log.exception("periodic work on the logs failed")
            self._replicas.notice_failures()

    async def _pause(self, interval_ms: int) -> bool:
        """Wait for the interval. Return True if `stop` ended the wait."""
        return await self._stopping.wait(min(interval_ms / 1000, _LONGEST_PAUSE_S))

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

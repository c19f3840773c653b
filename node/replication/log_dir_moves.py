"""Move replicas between the log directories of this broker (KIP-113), while they are read and written.

One task drives the steps of each move (`storage.moves.log_move`). The steps of all moves take turns on one thread, and
share the setting `replica.alter.log.dirs.io.max.bytes.per.second`. While flushes of a log wait for its move, the steps
of that move run on other threads, because a step of another move may take long. A move waits while its log is
compacted, and after a start until the controller has assigned the replica. It is cancelled if its replica goes offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.runtime.rate_limit import RateLimit
from node.runtime.thread_pool import thread_pool
from node.settings.dynamic_settings import DynamicSettings
from storage.files import Files
from storage.log.log import Log
from storage.log_manager import LogManager
from storage.log_names import future_name
from storage.moves.future_log import FutureLog
from storage.moves.log_move import LogMove, MoveEndedError
from storage.steps import PAUSE, StepOutcome, SteppedWork, call
from tidelog.client.tasks.async_event import Flag
from tidelog.errors import (
    BrokerError,
    BrokerNotAvailableError,
    NotLeaderOrFollowerError,
    ReplicaNotAvailableError,
    StorageError,
)
from tidelog.model import TopicPartition

log = logging.getLogger(__name__)

#: As many as flushes that run at the same time, because only flushes wait for urgent steps.
_URGENT_THREADS = 8
#: The pause after which a waiting move tries again.
_WAIT_S = 0.1
#: The time for which a request waits until the files of a cancelled move are out of the way.
_CANCEL_S = 5.0

T = TypeVar("T")


class LogDirMoves:
    """The moves of one broker.

    is_cleaning   returns whether the partition's log is being compacted
    new_pace      returns, for each move, a function that is called on the thread with the number of bytes just written
                  and sleeps so that the event loop is not delayed
    """

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        files: Files,
        settings: DynamicSettings,
        is_cleaning: Callable[[TopicPartition], bool],
        new_pace: Callable[[], Callable[[int], object]] = lambda: lambda written_bytes: None,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._files = files
        self._is_cleaning = is_cleaning
        self._new_pace = new_pace
        self._tasks: dict[FutureLog, asyncio.Task[None]] = {}
        self._stopping = Flag()
        self._thread = thread_pool(1, "log-move")
        #: For the steps of moves for which flushes wait.
        self._urgent = thread_pool(_URGENT_THREADS, "urgent-log-move")
        self._limit = RateLimit(lambda: settings.current.replica_alter_log_dirs_io_max_bytes_per_second)

    def start(self) -> None:
        """Go on with the moves of the previous process."""
        for future in self._logs.futures:
            self._begin(future)

    async def stop(self) -> None:
        """End all tasks after their current step. The next start goes on with moves that have not ended."""
        self._stopping.set()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._thread.shutdown(wait=False)
        self._urgent.shutdown(wait=False)

    @property
    def in_progress(self) -> list[FutureLog]:
        """Return the future log of each move that has not ended."""
        return list(self._logs.futures)

    async def alter(self, tp: TopicPartition, path: str) -> None:
        """Begin to move this broker's replica to the log directory `path`, and end a move to another directory.

        If the log is in that directory already, only end the other move. Without a replica, remember the directory for
        the log that a later assignment creates, and raise ReplicaNotAvailableError, or UnknownTopicOrPartitionError if
        the topic does not exist. Also raise LogDirNotFoundError, StorageError if the directory or the replica is
        offline, InvalidTopicError if the topic's name is too long, and BrokerNotAvailableError if the broker stops.
        """
        target = self._logs.directory_named(path)
        future_name(tp)
        try:
            replica = self._replicas.get_or_raise(tp).online_or_raise()
        except NotLeaderOrFollowerError as error:
            self._logs.futures.prefer(tp, target.path)
            raise ReplicaNotAvailableError(str(error)) from None
        except BrokerError as error:
            if not isinstance(error, StorageError):
                self._logs.futures.prefer(tp, target.path)
            raise
        under_way = self._logs.futures.get(tp)
        if under_way is not None and under_way.target is not target:
            await self._cancel(under_way)
        if self._logs.directory_of(tp) is target or tp in self._logs.futures:
            return
        if self._replicas.get(tp) is not replica:
            raise ReplicaNotAvailableError(f"the replica of {tp} was removed meanwhile")
        if self._stopping.is_set():
            raise BrokerNotAvailableError("the broker stops, so that no move begins")
        log.info("%s: the move to %s begins", tp, target.path)
        self._begin(self._logs.futures.add(tp, target))

    async def _cancel(self, future: FutureLog) -> None:
        """End the move. Return when its files are out of the way, or after `_CANCEL_S` if a disk hangs."""
        log.info("%s: the move to %s is cancelled", future.topic_partition, future.target.path)
        self._logs.futures.cancel(future.topic_partition)
        if task := self._tasks.get(future):
            await asyncio.wait({task}, timeout=_CANCEL_S)

    # --- one move --------------------------------------------------------------------------------------------

    def _begin(self, future: FutureLog) -> None:
        task = self._tasks[future] = asyncio.get_running_loop().create_task(self._run(future))
        task.add_done_callback(lambda _: self._tasks.pop(future))

    async def _run(self, future: FutureLog) -> None:
        tp = future.topic_partition

        def replaced(log_: Log) -> None:
            if replica := self._replicas.get(tp):
                replica.replace_log(log_)

        move = LogMove(
            self._logs,
            future,
            self._files,
            current=lambda: self._current(tp),
            high_watermark=lambda: self._high_watermark(tp),
            replaced=replaced,
            pace=self._new_pace(),
        )
        try:
            if not await self._drive(move):
                move.release_flushes()
                await self._on_thread(future.close)
                return
        except MoveEndedError:
            log.info("%s: the move to %s ended before the log was replaced", tp, future.target.path)
        except BrokerError as error:
            log.error("%s: the move to %s is given up: %s", tp, future.target.path, error)
        except Exception:
            log.exception("%s: the move to %s is given up", tp, future.target.path)
        self._logs.futures.forget(future)
        try:
            await self._on_thread(future.discard)
        except StorageError as error:
            log.error("%s: the files of the move cannot be removed: %s", future.path, error)
        self._replicas.notice_failures()

    async def _drive(self, move: LogMove) -> bool:
        """Run the steps of the move. Return False if the broker stops before their end; the next start goes on."""
        work = SteppedWork(move.steps())
        work.resume()
        while not work.finished:
            if self._stopping.is_set() and (work.step is PAUSE or not move.future.is_current):
                return False
            outcome, before = StepOutcome(), move.copied_bytes
            begun_ms = self._replicas.clock.monotonic_ms()
            if work.step is PAUSE:
                await self._stopping.wait(_WAIT_S)
            else:
                step = work.step
                pool = self._urgent if move.holds_flushes else self._thread
                outcome = await asyncio.get_running_loop().run_in_executor(pool, call, step)
                await self._throttle(move, move.copied_bytes - before, begun_ms)
            self._replicas.notice_failures()
            work.resume(outcome)
        return True

    def _current(self, tp: TopicPartition) -> Log | None:
        replica = self._online(tp)
        found = self._logs.logs().get(tp)
        return found if replica is not None and replica.log is found and not self._is_cleaning(tp) else None

    def _high_watermark(self, tp: TopicPartition) -> int:
        replica = self._online(tp)
        return 0 if replica is None else replica.partition.high_watermark

    def _online(self, tp: TopicPartition) -> Replica | None:
        replica = self._replicas.get(tp)
        return None if replica is None or replica.offline else replica

    async def _throttle(self, move: LogMove, copied_bytes: int, since_ms: int) -> None:
        """Wait until the setting allows more bytes. While flushes wait for the move, leave the wait to a later step."""
        self._limit.record(copied_bytes, since_ms)
        while True:
            left_s = self._limit.pause_ms(self._replicas.clock.monotonic_ms()) / 1000
            must_go_on = move.holds_flushes or move.future.is_current
            if must_go_on or move.future.cancelled or not left_s:
                return
            if await self._stopping.wait(min(left_s, _WAIT_S)):
                return

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

"""What logs need from time to time: segments go when their time has come, compaction, and syncs that are due.

Nothing here runs by itself or reads a clock. Methods say whether they belong to the logs' owner, who must never wait,
or to any thread. What fails is the failure of one directory (`LogManager.failed`), and nobody else's.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from storage.compaction.cleaner import MAP_BYTES, Cleaning, CleaningPlan, Replacement, plan_cleaning
from storage.configs.parsers import INT64_MAX
from storage.files import Files
from storage.log.log import Log
from storage.log_manager import LogManager
from storage.segments.segment import Segment
from tidelog.errors import CleaningAbortedError, CorruptMessageError, StorageError, UncleanableLogError
from tidelog.model import TopicPartition

_LOG = logging.getLogger(__name__)


class _Retired(NamedTuple):
    """A segment that is out of its log; `number` keeps the order of those that are due together.

    due_ms   on a clock that never jumps
    """

    due_ms: int
    number: int
    tp: TopicPartition
    segment: Segment


class CleaningStoppedError(Exception):
    """The broker stops: a round of compaction ends where it is."""


class Upkeep:
    """The upkeep of all logs of a manager.

    `map_bytes`: what one round of compaction may take for its map of keys. `throttle` makes, for each round, what is
    called with the bytes that it has just read and sleeps where it should.
    """

    def __init__(
        self,
        logs: LogManager,
        files: Files,
        *,
        map_bytes: int = MAP_BYTES,
        throttle: Callable[[], Callable[[int], object]] = lambda: lambda moved_bytes: None,
    ) -> None:
        self.logs = logs
        self._files = files
        self._map_bytes = map_bytes
        self._throttle = throttle
        self._retired: list[_Retired] = []
        self._retirements = 0
        self._retired_lock = threading.Lock()
        #: Logs that are being compacted, and those with a damaged batch, which stay as they are until the next start.
        self._set_apart: set[Log] = set()
        #: When what is not synced of a log was first seen.
        self._unsynced_since: dict[Log, int] = {}
        self._stopping = False

    # --- retention -----------------------------------------------------------------------------------

    def delete_old_segments(self, tp: TopicPartition, now_ms: int, high_watermark: int, monotonic_ms: int) -> int:
        """The owner's: takes out of one log what its settings and its log start allow; how many segments."""
        log = self.logs.logs().get(tp)
        if log is None:
            return 0
        try:
            retired = log.delete_old_segments(now_ms, high_watermark)
        except StorageError as error:
            self.logs.report(tp, error)
            return 0
        if retired:
            _LOG.info("%s starts at %d now: %d segments go", tp, log.log_start_offset, len(retired))
        self.retire(tp, log, retired, monotonic_ms)
        return len(retired)

    def forget_idle_producers(self, tp: TopicPartition, now_ms: int, expiration_ms: int) -> int:
        """The owner's: how many producers of one log were forgotten, since they have been idle for so long."""
        log = self.logs.logs().get(tp)
        return 0 if log is None else log.forget_idle_producers(now_ms, expiration_ms)

    def is_removal_due(self, monotonic_ms: int) -> bool:
        """Any thread's: whether `remove_deleted` has something to do."""
        with self._retired_lock:
            due = bool(self._retired) and self._retired[0].due_ms <= monotonic_ms
        return due or self.logs.has_deleted_logs

    def remove_deleted(self, monotonic_ms: int) -> int:
        """Any thread's: removes the files whose `file.delete.delay.ms` has passed; of how many segments.

        And those of deleted logs, which may take long: nobody waits for that, as at the next start they would go, too.
        """
        while not self._stopping and self.logs.remove_deleted_log():
            pass
        removed = 0
        while True:
            with self._retired_lock:
                if not self._retired or self._retired[0].due_ms > monotonic_ms:
                    return removed
                retired = heapq.heappop(self._retired)
            try:
                retired.segment.delete()
                removed += 1
            except StorageError as error:
                self.logs.report(retired.tp, error)

    def retire(self, tp: TopicPartition, log: Log, segments: tuple[Segment, ...], monotonic_ms: int) -> None:
        """Any thread's: the files of these are removed after the log's `file.delete.delay.ms`."""
        with self._retired_lock:
            for segment in segments:
                self._retirements += 1
                due_ms = monotonic_ms + log.config.file_delete_delay_ms
                heapq.heappush(self._retired, _Retired(due_ms, self._retirements, tp, segment))

    # --- syncing -------------------------------------------------------------------------------------

    def sync_due(self, now_ms: int) -> int:
        """Any thread's: syncs segments that were rolled, and logs in which a record waits for `flush.ms`; how many."""
        synced = 0
        before, self._unsynced_since = self._unsynced_since, {}
        for tp, log in self.logs.every_log():
            waits = log.config.flush_ms < INT64_MAX and log.recovery_point < log.log_end_offset
            if not waits and not log.has_unsynced_segments:
                continue
            since_ms = before.get(log, now_ms)
            due = waits and now_ms - since_ms >= log.config.flush_ms
            try:
                log.flush(rolled_only=not due)
            except StorageError as error:
                self.logs.report(tp, error)
                continue
            synced += due
            if waits and not due:
                self._unsynced_since[log] = since_ms
        return synced

    # --- compaction ----------------------------------------------------------------------------------

    def begin_cleaning(self, now_ms: int, upper_bounds: Mapping[TopicPartition, int]) -> CleaningRound | None:
        """The owner's: a round for the log with the most to gain, of those that are in none; None: nothing is due.

        `upper_bounds`: for each log that may be compacted the offset from which on nothing of it goes.
        """
        self._set_apart = {log for log in self._set_apart if not log.closed}
        best: CleaningPlan | None = None
        for tp, upper_bound in upper_bounds.items():
            log = self.logs.logs().get(tp)
            if log is None or not log.config.compact or log in self._set_apart:
                continue
            try:
                plan = plan_cleaning(log, self.logs.cleaner_offset(tp), now_ms, upper_bound)
            except StorageError as error:
                self.logs.report(tp, error)
                continue
            except CorruptMessageError as error:
                _LOG.error("%s is not compacted any more until the next start: %s", tp, error)
                self._set_apart.add(log)
                continue
            if plan is not None and (best is None or plan.dirty_ratio > best.dirty_ratio):
                best, chosen = plan, tp
        if best is None:
            return None
        self._set_apart.add(best.log)
        cleaning = Cleaning(best, self._files, map_bytes=self._map_bytes, pace=self._pace(self._throttle()))
        return CleaningRound(self, chosen, cleaning)

    def release(self, log: Log) -> None:
        """The owner's: a round of this log has ended."""
        self._set_apart.discard(log)

    def stop(self) -> None:
        """Any thread's: whatever is under way ends soon."""
        self._stopping = True

    def _pace(self, throttle: Callable[[int], object]) -> Callable[[int], None]:
        def pace(moved_bytes: int) -> None:
            if self._stopping:
                raise CleaningStoppedError
            throttle(moved_bytes)

        return pace


#: How a round may end of a log that the next one may well compact.
_PASSING = (StorageError, CleaningAbortedError, CleaningStoppedError)


class CleaningRound:
    """One log's compaction under way: `write_next` and `install` take turns until there is no next, then `end`."""

    def __init__(self, upkeep: Upkeep, tp: TopicPartition, cleaning: Cleaning) -> None:
        self.topic_partition = tp
        self._upkeep = upkeep
        self._cleaning = cleaning
        self._piece: Replacement | None = None
        self._error: Exception | None = None
        self._began = self._noted = False

    def write_next(self) -> bool:
        """Any thread's: writes the next new segment. False: the round is done, or it went wrong."""
        if self._error is not None:
            return False
        try:
            if not self._began:
                # What lets older records go must be on the disk before they do, and a round learns all of it at first.
                self._cleaning.plan.log.flush(rolled_only=True)
                self._began = True
            self._piece = self._cleaning.write_next()
            if self._piece is None:
                # What was replaced must not come back beside a note that says that it was dealt with.
                self._cleaning.plan.log.flush(rolled_only=True)
        except MemoryError:
            raise  # which tells nothing of the log
        except Exception as error:  # also what nobody foresaw: this very log would meet it in each round
            self._error, self._piece = error, None
        else:
            if self._piece is None and not self._cleaning.overtaken:
                plan, end_offset = self._cleaning.plan, self._cleaning.end_offset
                self._noted = self._upkeep.logs.note_cleaned(
                    self.topic_partition, plan.log, end_offset, plan.truncation_count
                )
        return self._piece is not None

    def install(self, monotonic_ms: int) -> None:
        """The owner's: the new segment takes its place in the log."""
        assert self._piece is not None
        try:
            old = self._cleaning.install(self._piece)
        except (StorageError, CleaningAbortedError) as error:
            self._error = error
        else:
            self._upkeep.retire(self.topic_partition, self._cleaning.plan.log, old, monotonic_ms)

    def end(self) -> bool:
        """The owner's: the log may be compacted again, unless it cannot be. False where the round went wrong."""
        tp, cleaning, error = self.topic_partition, self._cleaning, self._error
        if error is not None and not isinstance(error, _PASSING) and not cleaning.overtaken:
            unforeseen = None if isinstance(error, UncleanableLogError) else error
            _LOG.error("%s is not compacted any more until the next start: %s", tp, error, exc_info=unforeseen)
            return False
        self._upkeep.release(cleaning.plan.log)
        if isinstance(error, StorageError) and not cleaning.overtaken:
            self._upkeep.logs.report(tp, error)
        elif self._noted:
            _LOG.info(
                "%s is compacted up to %d: %d of %d records stay in what was written anew",
                tp, cleaning.end_offset, cleaning.records_kept, cleaning.records_read,
            )  # fmt: skip
        return error is None

"""The periodic work on logs: removing old segments, compaction, and flushes that are due.

No method runs by itself or reads a clock. Each method says whether it belongs to the logs' owner, which must never
wait, or may run on any thread. An error is the failure of one directory only (`LogManager.failed`).
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
from tidelog.errors import (
    CleaningAbortedError,
    CorruptMessageError,
    RequestTimedOutError,
    StorageError,
    UncleanableLogError,
)
from tidelog.model import TopicPartition

_LOG = logging.getLogger(__name__)


class _Retired(NamedTuple):
    """A segment that was removed from its log. `number` orders segments that are due at the same time.

    due_ms   on a monotonic clock
    """

    due_ms: int
    number: int
    tp: TopicPartition
    segment: Segment


class CleaningStoppedError(Exception):
    """The broker stops, so the compaction round ends early."""


class LogMaintenance:
    """The periodic work on all logs of a manager.

    `map_bytes` limits the memory for the key map of one compaction round. `throttle` returns, for each round, a
    function that is called with the number of bytes just moved and sleeps as needed.
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
        #: Logs that are being compacted, and logs with a damaged batch, which are not compacted until the next start.
        self._excluded: set[Log] = set()
        #: The partitions of the rounds that have not ended.
        self._cleaned: set[TopicPartition] = set()
        #: The partitions that `flush_due` visits again even if their logs do not change, with the time (ms) of the call
        #: that first found something to flush.
        self._unflushed_since: dict[TopicPartition, int] = {}
        self._stopping = False

    # --- retention -----------------------------------------------------------------------------------

    def delete_old_segments(self, tp: TopicPartition, now_ms: int, high_watermark: int, monotonic_ms: int) -> int:
        """Remove the segments that the log's settings or its log start allow to remove, and return their number.

        Segments that reach beyond `high_watermark` stay. `retire` schedules the removal of the files, from
        `monotonic_ms` on. Return 0 if the log does not exist. If the disk fails, report the error to the manager and
        return 0. `now_ms` is wall-clock time. For the owner of the logs only.
        """
        log = self.logs.logs().get(tp)
        if log is None:
            return 0
        try:
            retired = log.delete_old_segments(now_ms, high_watermark)
        except StorageError as error:
            self.logs.report(tp, error)
            return 0
        if retired:
            _LOG.info(
                "%s: deleted %d old segments; the log starts at offset %d", tp, len(retired), log.log_start_offset
            )
        self.retire(tp, log, retired, monotonic_ms)
        return len(retired)

    def forget_idle_producers(self, tp: TopicPartition, now_ms: int, expiration_ms: int) -> int:
        """Forget producers of one log that were idle for `expiration_ms`; return their number. For the owner only."""
        log = self.logs.logs().get(tp)
        return 0 if log is None else log.forget_idle_producers(now_ms, expiration_ms)

    def is_removal_due(self, monotonic_ms: int) -> bool:
        """Return whether `remove_deleted` has something to do. Any thread may call this."""
        with self._retired_lock:
            due = bool(self._retired) and self._retired[0].due_ms <= monotonic_ms
        return due or self.logs.has_deleted_logs

    def remove_deleted(self, monotonic_ms: int) -> int:
        """Remove the files of segments whose `file.delete.delay.ms` is over; return the number of segments.

        Any thread may call this, one at a time.

        First removes the files of deleted logs, which may take long. A stop leaves the rest of them, because the next
        start removes what is left.
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
        """Schedule the removal of these segments' files after `file.delete.delay.ms`. Any thread may call this."""
        with self._retired_lock:
            for segment in segments:
                self._retirements += 1
                due_ms = monotonic_ms + log.config.file_delete_delay_ms
                heapq.heappush(self._retired, _Retired(due_ms, self._retirements, tp, segment))

    # --- flushing ------------------------------------------------------------------------------------

    def flush_due(self, now_ms: int) -> int:
        """Flush rolled segments, and whole logs in which a record has waited for `flush.ms`.

        The wait counts from the call that first found an unflushed record of the partition. Return the number of logs
        that were flushed because of `flush.ms`. Any thread may call this, one at a time. The cost grows with the number
        of logs that have changed or wait, not with all logs, because a broker calls this each second.
        """
        for tp in self.logs.take_changed():
            self._unflushed_since.setdefault(tp, now_ms)
        flushed = 0
        for tp, since_ms in list(self._unflushed_since.items()):
            log = self.logs.log_of(tp)
            if log is not None and self._flush_if_due(tp, log, now_ms - since_ms):
                flushed += 1
                self._unflushed_since[tp] = now_ms  # of records that were appended during the flush
            if log is None or not (_waits(log) or log.has_unflushed_segments):
                del self._unflushed_since[tp]
        return flushed

    def _flush_if_due(self, tp: TopicPartition, log: Log, waited_ms: int) -> bool:
        """Flush the log as `flush_due` does. Return whether `flush.ms` was the reason."""
        due = _waits(log) and waited_ms >= log.config.flush_ms
        if not due and not log.has_unflushed_segments:
            return False
        try:
            log.flush(rolled_only=not due)
        except StorageError as error:
            if self.logs.log_of(tp) is log:  # the log may have moved to another directory meanwhile
                self.logs.report(tp, error)
            return False
        return due

    # --- compaction ----------------------------------------------------------------------------------

    def begin_cleaning(self, now_ms: int, upper_bounds: Mapping[TopicPartition, int]) -> CleaningRound | None:
        """Return a round for the log with the highest dirty ratio that is in no round; None if none needs compaction.

        `upper_bounds` has, for each log that may be compacted, the first offset that must not be compacted. A log in
        which compaction found a damaged batch, or failed unexpectedly, is skipped until the next start. A log that is
        moved to another directory is skipped until the move has ended. For the owner only.
        """
        self._excluded = {log for log in self._excluded if not log.closed}
        best: CleaningPlan | None = None
        for tp, upper_bound in upper_bounds.items():
            log = self.logs.logs().get(tp)
            if log is None or not log.config.compact or log in self._excluded or tp in self.logs.futures:
                continue
            try:
                plan = plan_cleaning(log, self.logs.cleaner_offset(tp), now_ms, upper_bound)
            except StorageError as error:
                self.logs.report(tp, error)
                continue
            except CorruptMessageError as error:
                _LOG.error(
                    "%s: not compacted until the next start of the broker, because a batch is damaged: %s", tp, error
                )
                self._excluded.add(log)
                continue
            if plan is not None and (best is None or plan.dirty_ratio > best.dirty_ratio):
                best, chosen = plan, tp
        if best is None:
            return None
        self._excluded.add(best.log)
        self._cleaned.add(chosen)
        cleaning = Cleaning(best, self._files, map_bytes=self._map_bytes, pace=self._pace(self._throttle()))
        return CleaningRound(self, chosen, cleaning)

    def is_cleaning(self, tp: TopicPartition) -> bool:
        """Return whether a round of the partition's log has not ended. For the owner only."""
        return tp in self._cleaned

    def ended(self, tp: TopicPartition) -> None:
        """Note that the round of the partition's log has ended. For the owner only."""
        self._cleaned.discard(tp)

    def release(self, log: Log) -> None:
        """Allow the next round of this log, after its round has ended. For the owner only."""
        self._excluded.discard(log)

    def stop(self) -> None:
        """End compaction at the next batch, and the removal of deleted logs after the current one; for good.

        Any thread may call this.
        """
        self._stopping = True

    def _pace(self, throttle: Callable[[int], object]) -> Callable[[int], None]:
        def pace(moved_bytes: int) -> None:
            if self._stopping:
                raise CleaningStoppedError
            throttle(moved_bytes)

        return pace


def _waits(log: Log) -> bool:
    """Return whether the log has records that `flush.ms` will flush."""
    return log.config.flush_ms < INT64_MAX and log.recovery_point < log.log_end_offset


#: Errors after which the next round may compact the log all the same.
_TRANSIENT_ERRORS = (StorageError, CleaningAbortedError, CleaningStoppedError, RequestTimedOutError)


class CleaningRound:
    """The compaction of one log: call `write_next` and `install` in turn until `write_next` is False, then `end`."""

    def __init__(self, maintenance: LogMaintenance, tp: TopicPartition, cleaning: Cleaning) -> None:
        self.topic_partition = tp
        self._maintenance = maintenance
        self._cleaning = cleaning
        self._piece: Replacement | None = None
        self._error: Exception | None = None
        self._began = self._recorded = False

    def write_next(self) -> bool:
        """Write and flush the next new segment. Return False if the round is complete or has failed.

        The rolled segments are flushed before the first one and after the last one. At the end the cleaner offset is
        recorded, unless the log has lost segments meanwhile. A MemoryError is raised; every other error fails the
        round. Any thread may call this.
        """
        if self._error is not None:
            return False
        try:
            if not self._began:
                # Newer records justify the removal of older ones, so they must be flushed first.
                self._cleaning.plan.log.flush(rolled_only=True)
                self._began = True
            self._piece = self._cleaning.write_next()
            if self._piece is None:
                # The old segments must not reappear after a crash beside a record that they are compacted.
                self._cleaning.plan.log.flush(rolled_only=True)
        except MemoryError:
            raise  # not a fault of this log
        except Exception as error:  # also unexpected errors, because this log would meet them in every round
            self._error, self._piece = error, None
        else:
            if self._piece is None and not self._cleaning.overtaken:
                plan, end_offset = self._cleaning.plan, self._cleaning.end_offset
                self._recorded = self._maintenance.logs.record_cleaned(
                    self.topic_partition, plan.log, end_offset, plan.truncation_count
                )
        return self._piece is not None

    def install(self, monotonic_ms: int) -> None:
        """Put the new segment into the log and schedule the removal of the old ones. An error fails the round.

        Called after each `write_next` that returned True. For the owner only.
        """
        assert self._piece is not None
        try:
            old = self._cleaning.install(self._piece)
        except (StorageError, CleaningAbortedError) as error:
            self._error = error
        else:
            self._maintenance.retire(self.topic_partition, self._cleaning.plan.log, old, monotonic_ms)

    def end(self) -> bool:
        """End the round; return False if it failed. For the owner only.

        The log may then be compacted again, unless the error will occur in every round. A StorageError is reported to
        the manager, unless the log was closed or lost segments meanwhile.
        """
        tp, cleaning, error = self.topic_partition, self._cleaning, self._error
        self._maintenance.ended(tp)
        if error is not None and not isinstance(error, _TRANSIENT_ERRORS) and not cleaning.overtaken:
            unforeseen = None if isinstance(error, UncleanableLogError) else error
            _LOG.error("%s: not compacted until the next start of the broker: %s", tp, error, exc_info=unforeseen)
            return False
        self._maintenance.release(cleaning.plan.log)
        if isinstance(error, StorageError) and not cleaning.overtaken:
            self._maintenance.logs.report(tp, error)
        elif self._recorded:
            _LOG.info(
                "%s: compacted up to offset %d; %d of %d records were kept in the new segments",
                tp, cleaning.end_offset, cleaning.records_kept, cleaning.records_read,
            )  # fmt: skip
        return error is None

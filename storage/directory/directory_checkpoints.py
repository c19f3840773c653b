"""The checkpoint files of a log directory, one file for each kind of value.

recovery-point-offset-checkpoint   the offset up to which each log is flushed
replication-offset-checkpoint      high watermarks
log-start-offset-checkpoint        log start offsets that the names of the segments do not show
cleaner-offset-checkpoint          the offset up to which each log is compacted
leadership-checkpoint              for each partition, the leadership on which this broker acted last

A later log of the same partition inherits none of these values. Before a log is truncated, its offsets are lowered.
While a log is moved here, the files have its values before the log is one of the open logs (`write_incoming`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from storage.directory import leadership_checkpoint as leaderships
from storage.directory.leadership_checkpoint import Leadership
from storage.files import Files
from storage.log.log import Log
from tidelog.errors import StorageError
from tidelog.model import TopicPartition


class Truncatable(Protocol):
    """A log that counts its truncations in `truncation_count`."""

    truncation_count: int


class Committed(NamedTuple):
    """The high watermark of a log, with the log's `truncation_count` at that moment."""

    log: Truncatable
    truncation_count: int
    high_watermark: int

    @classmethod
    def of(cls, log: Truncatable, high_watermark: int) -> Committed:
        """Return the high watermark with the log's current `truncation_count`."""
        return cls(log, log.truncation_count, high_watermark)


class MovedValues(NamedTuple):
    """The values of a log that is moved here from another directory; see the files above.

    `leadership` is that of the other directory's checkpoint; None if it has none.
    """

    recovery_point: int
    high_watermark: int
    log_start: int
    cleaner_offset: int
    leadership: Leadership | None


class DirectoryCheckpoints:
    """The checkpoints of one directory. Methods that write raise StorageError.

    A file whose content would not change is not written. The logs' owner and other threads write. `logs` are the open
    logs of the directory; the owner changes them.
    """

    def __init__(self, path: Path, files: Files, logs: dict[TopicPartition, Log]) -> None:
        self._path = path
        self._files = files
        self._logs = logs
        self._lock = threading.Lock()
        #: Partitions whose logs are being moved here, or stay closed here.
        self._incoming: set[TopicPartition] = set()
        # The contents of each file, so that an unchanged checkpoint is not written again.
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._leaderships: Mapping[TopicPartition, Leadership] = leaderships.read(files, path)
        self._recovery_points = read_offsets(files, path / RECOVERY_POINTS)
        self._high_watermarks = read_offsets(files, path / HIGH_WATERMARKS)
        #: High watermarks that are not in the file yet, because a write of it has failed.
        self._unwritten: dict[TopicPartition, Committed] = {}
        self._log_starts = read_offsets(files, path / LOG_STARTS)
        self._cleaner_offsets = read_offsets(files, path / CLEANER_OFFSETS)

    # --- as last written -----------------------------------------------------------------------------

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return a copy of the high watermarks as last read or written.

        Before the first write, the copy is empty if the file was missing or damaged at the start.
        """
        return dict(self._high_watermarks)

    def high_watermark(self, tp: TopicPartition) -> int:
        """Return the checkpointed high watermark; 0 if there is none."""
        return self._high_watermarks.get(tp, 0)

    @property
    def leaderships(self) -> Mapping[TopicPartition, Leadership]:
        return self._leaderships

    def recovery_point(self, tp: TopicPartition) -> int | None:
        """Return the checkpointed recovery point; None if there is none."""
        return self._recovery_points.get(tp)

    def log_start(self, tp: TopicPartition) -> int:
        """Return the checkpointed log start offset; 0 if none is recorded."""
        return self._log_starts.get(tp, 0)

    def cleaner_offset(self, tp: TopicPartition) -> int:
        """Return the offset up to which the log is compacted; 0 if unknown.

        Takes no lock, because the holder of the lock waits for the disk and this caller must not.
        """
        return self._cleaner_offsets.get(tp, 0)

    # --- writing -------------------------------------------------------------------------------------

    def write_high_watermarks(self, committed: Mapping[TopicPartition, Committed]) -> None:
        """Replace the checkpoint with the high watermarks of the open logs, and flush it.

        The old value of a partition stays if `committed` lacks the partition, names another log of it, or was taken
        before a truncation of the log. If the write fails, the next call includes these values. Do nothing if there are
        no values to write, because a broker calls this every few seconds.
        """
        with self._lock:
            self._unwritten |= {tp: each for tp, each in committed.items() if self._logs.get(tp) is each.log}
            if not self._unwritten:
                return
            here: dict[TopicPartition, int] = {}
            for tp, log in list(self._logs.items()):
                known = self._unwritten.get(tp)
                if known is not None and known.log is log and known.truncation_count == log.truncation_count:
                    here[tp] = known.high_watermark
                elif tp in self._high_watermarks:
                    here[tp] = self._high_watermarks[tp]
            for tp in self._incoming & self._high_watermarks.keys():
                here.setdefault(tp, self._high_watermarks[tp])
            self._write(HIGH_WATERMARKS, here)
            self._high_watermarks = here
            self._unwritten.clear()

    def write_leaderships(self, leaderships_: Mapping[TopicPartition, Leadership]) -> None:
        """Replace the checkpoint of all partitions at once, without a flush, if any leadership has changed."""
        with self._lock:
            moved = {tp: self._leaderships[tp] for tp in self._incoming & self._leaderships.keys()}
            self._write_leaderships({**moved, **leaderships_})

    def _write_leaderships(self, known: Mapping[TopicPartition, Leadership]) -> None:
        if known != self._leaderships:
            leaderships.write(self._files, self._path, known)
            self._leaderships = known

    def write_recovery_points(self) -> None:
        """Write the recovery point of every open log, and flush the file. Entries of other logs stay."""
        with self._lock:
            self._recovery_points |= {tp: log.recovery_point for tp, log in list(self._logs.items())}
            self._write(RECOVERY_POINTS, self._recovery_points)

    def write_log_starts(self) -> None:
        """Write and flush the log starts that segment names do not show, or would not show if the power failed now."""
        with self._lock:
            for tp, log in list(self._logs.items()):
                if log.log_start_offset > log.segment_base_offsets[0] or not log.names_flushed:
                    self._log_starts[tp] = log.log_start_offset
                else:
                    self._log_starts.pop(tp, None)
            self._write(LOG_STARTS, self._log_starts)

    def write_cleaner_offset(self, tp: TopicPartition, log: Log, offset: int, truncation_count: int) -> bool:
        """Record that the log is compacted up to `offset`, and flush the record.

        Return False, and record nothing, if the log is no longer in use or was truncated since `truncation_count`. The
        records that were appended after a truncation are not compacted.
        """
        with self._lock:
            # A later log of the same partition may be in use instead.
            if self._logs.get(tp) is not log or log.truncation_count != truncation_count:
                return False
            self._cleaner_offsets[tp] = offset
            self._write(CLEANER_OFFSETS, self._cleaner_offsets)
            return True

    # --- logs that are moved here --------------------------------------------------------------------

    def write_incoming(self, tp: TopicPartition, values: MovedValues) -> None:
        """Write all values of a log that is about to become the partition's log here, and flush the offsets.

        Until `forget_incoming`, the other writers keep them.
        """
        with self._lock:
            self._incoming.add(tp)
            for name, offsets, offset in (
                (RECOVERY_POINTS, self._recovery_points, values.recovery_point),
                (HIGH_WATERMARKS, self._high_watermarks, values.high_watermark),
                (LOG_STARTS, self._log_starts, values.log_start),
                (CLEANER_OFFSETS, self._cleaner_offsets, values.cleaner_offset),
            ):
                if offset:
                    offsets[tp] = offset
                else:
                    offsets.pop(tp, None)
                self._write(name, offsets)
            if values.leadership is not None:
                self._write_leaderships({**self._leaderships, tp: values.leadership})

    def keep(self, tp: TopicPartition) -> None:
        """Let the other writers keep the values of a log that stays closed."""
        with self._lock:
            self._incoming.add(tp)

    def forget_incoming(self, tp: TopicPartition) -> None:
        """Treat the partition like every other one. Without a log of it here, remove the values. StorageError."""
        with self._lock:
            self._incoming.discard(tp)
            if tp not in self._logs:
                self._remove(tp)

    def leadership(self, tp: TopicPartition) -> Leadership | None:
        """Return the checkpointed leadership; None if there is none."""
        return self._leaderships.get(tp)

    # --- values that no longer hold ------------------------------------------------------------------

    def lower_to(self, tp: TopicPartition, offset: int) -> None:
        """Lower the recovery point, cleaner offset and high watermark to `offset` if they are past it; flush the files.

        Called because the log is truncated there. A recorded log start past `offset` is removed, because the log then
        starts at its first segment.
        """
        self.lower_except_high_watermark(tp, offset)
        with self._lock:
            self._lower(HIGH_WATERMARKS, self._high_watermarks, tp, offset)
        if self.log_start(tp) > offset:
            self.remove_log_start(tp)

    def lower_except_high_watermark(self, tp: TopicPartition, offset: int) -> None:
        """Lower the recovery point and the cleaner offset to `offset` if they are past it, and flush the files.

        The high watermark stays, because it shows how many committed records the log lacks.
        """
        with self._lock:
            self._lower(RECOVERY_POINTS, self._recovery_points, tp, offset)
            self._lower(CLEANER_OFFSETS, self._cleaner_offsets, tp, offset)

    def remove_log_start(self, tp: TopicPartition) -> None:
        """Remove the recorded log start and flush the file, so that the log starts at its first segment."""
        with self._lock:
            before = self._log_starts.pop(tp, 0)  # 0 if another thread has removed it
            try:
                self._write(LOG_STARTS, self._log_starts)
            except StorageError:
                self._log_starts[tp] = before
                raise

    def remove_logs(self, *tps: TopicPartition) -> list[Log]:
        """Remove all offsets of these logs, then take the open ones out of `logs` and return them.

        The files are written first, so that a later log of the same name inherits nothing even after a crash. On an
        error all logs stay in use.
        """
        with self._lock:
            self._remove(*tps)
            return [log for tp in tps if (log := self._logs.pop(tp, None))]

    def _remove(self, *tps: TopicPartition) -> None:
        """Remove all offsets of these logs, and write the files. The caller holds the lock."""
        for name, offsets in (
            (LOG_STARTS, self._log_starts),
            (CLEANER_OFFSETS, self._cleaner_offsets),
            (RECOVERY_POINTS, self._recovery_points),
            (HIGH_WATERMARKS, self._high_watermarks),
        ):
            if known := offsets.keys() & set(tps):
                self._write(name, {tp: offset for tp, offset in offsets.items() if tp not in known})
                for tp in known:
                    del offsets[tp]

    def _lower(self, name: str, offsets: dict[TopicPartition, int], tp: TopicPartition, offset: int) -> None:
        """Lower one value to `offset` if it is past that, and write the file. The caller holds the lock."""
        before = offsets.get(tp, 0)
        if before > offset:
            offsets[tp] = offset
            try:
                self._write(name, offsets)
            except StorageError:
                offsets[tp] = before  # so that a second truncation does not take the value for written
                raise

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write and flush the file if its content differs from the last write. The caller holds the lock."""
        if self._written.get(name) == offsets:
            return
        self._written.pop(name, None)  # the contents are unknown until the write has succeeded
        write_offsets(self._files, self._path / name, offsets)
        self._written[name] = dict(offsets)

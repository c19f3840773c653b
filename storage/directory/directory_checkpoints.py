"""What a log directory notes of its logs, so that the next process knows it: a file for each kind.

recovery-point-offset-checkpoint   up to where each log is synced
replication-offset-checkpoint      high watermarks
log-start-offset-checkpoint        log starts that lie inside a segment
cleaner-offset-checkpoint          up to where each log is compacted
leadership-checkpoint              on whose leadership this broker acted last, for each partition

A later log of the same name inherits nothing of them, and what was noted of a log that is cut is lowered first.
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
    """`truncation_count`: how often something was cut off its end."""

    truncation_count: int


class Committed(NamedTuple):
    """The high watermark of a log, of when it had been cut so often."""

    log: Truncatable
    truncation_count: int
    high_watermark: int

    @classmethod
    def of(cls, log: Truncatable, high_watermark: int) -> Committed:
        """As it is now."""
        return cls(log, log.truncation_count, high_watermark)


class DirectoryCheckpoints:
    """Written on the owner's thread and on others, each time what holds at that moment. All but reading: StorageError.

    `logs` are those of the directory that are open; its owner changes them.
    """

    def __init__(self, path: Path, files: Files, logs: dict[TopicPartition, Log]) -> None:
        self._path = path
        self._files = files
        self._logs = logs
        self._lock = threading.Lock()
        # As they stand in their files: what has not changed is not written again.
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._leaderships: Mapping[TopicPartition, Leadership] = leaderships.read(files, path)
        self._recovery_points = read_offsets(files, path / RECOVERY_POINTS)
        self._high_watermarks = read_offsets(files, path / HIGH_WATERMARKS)
        self._log_starts = read_offsets(files, path / LOG_STARTS)
        self._cleaner_offsets = read_offsets(files, path / CLEANER_OFFSETS)

    # --- as last noted -------------------------------------------------------------------------------

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """As they are now, whatever other threads note. Empty where the checkpoint was missing or damaged."""
        return dict(self._high_watermarks)

    def high_watermark(self, tp: TopicPartition) -> int:
        """0 where nothing is noted of the log."""
        return self._high_watermarks.get(tp, 0)

    @property
    def leaderships(self) -> Mapping[TopicPartition, Leadership]:
        return self._leaderships

    def recovery_point(self, tp: TopicPartition) -> int | None:
        """None where nothing is noted of the log."""
        return self._recovery_points.get(tp)

    def log_start(self, tp: TopicPartition) -> int:
        """0 where the names of the segments tell it."""
        return self._log_starts.get(tp, 0)

    def cleaner_offset(self, tp: TopicPartition) -> int:
        """0 where that is not known. Without the lock: who holds that waits for the disk, and who asks must not."""
        return self._cleaner_offsets.get(tp, 0)

    # --- noting --------------------------------------------------------------------------------------

    def write_high_watermarks(self, committed: Mapping[TopicPartition, Committed]) -> None:
        """Replaces the checkpoint, durably, with those of the logs that are here.

        What is noted stays where nothing is known of a log, or what is known is of another one of its name, or of
        before it was cut.
        """
        with self._lock:
            here: dict[TopicPartition, int] = {}
            for tp, log in list(self._logs.items()):
                known = committed.get(tp)
                if known is not None and known.log is log and known.truncation_count == log.truncation_count:
                    here[tp] = known.high_watermark
                elif tp in self._high_watermarks:
                    here[tp] = self._high_watermarks[tp]
            self._write(HIGH_WATERMARKS, here)
            self._high_watermarks = here

    def write_leaderships(self, leaderships_: Mapping[TopicPartition, Leadership]) -> None:
        """Replaces the checkpoint (all partitions at once), but not durably."""
        with self._lock:
            if leaderships_ != self._leaderships:
                leaderships.write(self._files, self._path, leaderships_)
                self._leaderships = leaderships_

    def write_recovery_points(self) -> None:
        """Up to where each log is synced."""
        with self._lock:
            self._recovery_points |= {tp: log.recovery_point for tp, log in list(self._logs.items())}
            self._write(RECOVERY_POINTS, self._recovery_points)

    def write_log_starts(self) -> None:
        """Those that the names of the segments do not tell, or would not if the power failed now."""
        with self._lock:
            for tp, log in list(self._logs.items()):
                if log.log_start_offset > log.segment_base_offsets[0] or not log.names_synced:
                    self._log_starts[tp] = log.log_start_offset
                else:
                    self._log_starts.pop(tp, None)
            self._write(LOG_STARTS, self._log_starts)

    def write_cleaner_offset(self, tp: TopicPartition, log: Log, offset: int, truncation_count: int) -> bool:
        """Notes, durably, that the log is compacted up to `offset`.

        False, and it is not noted, where it has gone out of use meanwhile, or was cut since it had so many
        `truncation_count`: what took the place of what was cut is not compacted.
        """
        with self._lock:
            # the next of its name, perhaps
            if self._logs.get(tp) is not log or log.truncation_count != truncation_count:
                return False
            self._cleaner_offsets[tp] = offset
            self._write(CLEANER_OFFSETS, self._cleaner_offsets)
            return True

    # --- what holds no more --------------------------------------------------------------------------

    def log_cut(self, tp: TopicPartition, offset: int) -> None:
        """What was noted beyond holds no more. One that begins before its noted start begins anew."""
        self.distrust(tp, offset)
        with self._lock:
            self._lower(HIGH_WATERMARKS, self._high_watermarks, tp, offset)
        if self.log_start(tp) > offset:
            self.forget_log_start(tp)

    def distrust(self, tp: TopicPartition, offset: int) -> None:
        """What lies beyond is neither synced nor compacted. That it was committed tells what the log lacks."""
        with self._lock:
            self._lower(RECOVERY_POINTS, self._recovery_points, tp, offset)
            self._lower(CLEANER_OFFSETS, self._cleaner_offsets, tp, offset)

    def forget_log_start(self, tp: TopicPartition) -> None:
        """It begins where its first segment does."""
        with self._lock:
            before = self._log_starts.pop(tp, 0)  # 0 where another thread came first
            try:
                self._write(LOG_STARTS, self._log_starts)
            except StorageError:
                self._log_starts[tp] = before
                raise

    def take_out(self, *tps: TopicPartition) -> list[Log]:
        """Forgets these logs, and takes those that are open out of use; on an error they stay in it.

        Not even after a crash may a later log of the name find any of it.
        """
        with self._lock:
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
            return [log for tp in tps if (log := self._logs.pop(tp, None))]

    def _lower(self, name: str, offsets: dict[TopicPartition, int], tp: TopicPartition, offset: int) -> None:
        """The caller holds the lock."""
        before = offsets.get(tp, 0)
        if before > offset:
            offsets[tp] = offset
            try:
                self._write(name, offsets)
            except StorageError:
                offsets[tp] = before  # so that who cuts again does not take it for written
                raise

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """The caller holds the lock."""
        if self._written.get(name) == offsets:
            return
        self._written.pop(name, None)  # until it is known that the file was replaced
        write_offsets(self._files, self._path / name, offsets)
        self._written[name] = dict(offsets)

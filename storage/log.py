"""One replica's log of one partition: an ordered row of segments, written at the end and read anywhere.

All calls but `flush` belong to the thread that owns the log; `flush` may run on one other beside them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from storage import lookup, partition_metadata, recovery
from storage.admission import admit
from storage.config import LogConfig
from storage.files import Files
from storage.leader_epochs import EpochStart
from storage.lookup import TimestampOffset
from storage.producer_state import Snapshots
from storage.segment import BatchSpan, Segment
from tidelog.errors import CorruptMessageError, InvalidRecordError, OffsetOutOfRangeError, StorageError
from tidelog.model import NO_TIMESTAMP, Buffer
from tidelog.records import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    TimestampType,
    iter_headers,
    read_header,
    stamp_log_append_time,
    validate_batch,
)

_ASSIGNED = Struct(">qii")  # base offset, batch length, leader epoch: the bytes of a header that the leader writes
_OUTLINE = Struct(">qi11xi")  # base offset, batch length, last offset delta: what a reader needs to cut at batches
_POSITIONS_KEPT = 32


class AppendInfo(NamedTuple):
    """Where the records stand. `log_append_time_ms` is −1 with CreateTime; a duplicate stands where it did before."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int = NO_TIMESTAMP
    duplicate: bool = False


class Log:
    """Batches by offset.

    log_start_offset  first offset that may be read. Raised by trimming, never lowered.
    log_end_offset    the offset of the next record. Raised by appends, lowered by truncation.
    recovery_point    all below it is synced, a crash is recovered from here. Raised by `flush`, lowered by truncation.
    topic_id          from `partition.metadata`; "" where that is missing.
    config            may be replaced at any time.

    log_start_offset ≤ log_end_offset, recovery_point ≤ log_end_offset.
    """

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        files: Files,
        recovered: recovery.RecoveredLog,
        log_start_offset: int,
        recovery_point: int,
        before_truncation: Callable[[int], None] | None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.recovered = recovered
        self.topic_id = partition_metadata.read_topic_id(files, directory)
        self._files = files
        self._segments = recovered.segments
        self._base_offsets = [segment.base_offset for segment in self._segments]
        self._active = self._segments[-1]
        self._epochs = recovered.epochs
        self._snapshots = Snapshots(directory, files)
        self._before_truncation = before_truncation
        self.log_end_offset = self._active.next_offset
        self.log_start_offset = max(log_start_offset, self._base_offsets[0])
        self.recovery_point = min(recovery_point, self.log_end_offset)
        self._producers = recovery.rebuild_producers(self._segments, self._snapshots)
        self._snapshots.keep_only({*self._base_offsets, *self._snapshots.offsets()[-1:]})
        last = recovered.last_batch
        stamped = last is not None and last.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._last_stamp = last.max_timestamp if last is not None and stamped else NO_TIMESTAMP
        #: Where the batch after a recent read begins, so that who reads on needs no index.
        self._positions: dict[int, tuple[Segment, int]] = {}
        self._truncations = 0
        self._recovery_point_lock = threading.Lock()
        self._failure: StorageError | None = None
        self._abandoned = False

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        files: Files,
        *,
        recovery_point: int,
        clean: bool,
        log_start_offset: int = 0,
        before_truncation: Callable[[int], None] | None = None,
    ) -> Log:
        """Opens or creates the log in a directory. `clean`: the last process closed it in order.

        Otherwise all from the recovery point on is checked and what is damaged is cut off (`storage.recovery`).
        `before_truncation` is called with the new recovery point before a truncation that lowers it, and must have made
        it durable when it returns: what is appended over the cut is not synced.
        """
        files.make_directory(directory)
        recovered = recovery.recover(
            directory,
            files,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            index_interval_bytes=config.index_interval_bytes,
        )
        return cls(directory, config, files, recovered, log_start_offset, recovery_point, before_truncation)

    # --- facts ---------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """Of all `.log` files."""
        return sum(segment.size for segment in self._segments)

    @property
    def segment_base_offsets(self) -> Sequence[int]:
        return tuple(self._base_offsets)

    @property
    def latest_epoch(self) -> int | None:
        """The leader epoch that began last; None in a log that has seen none."""
        return self._epochs.latest

    @property
    def epochs(self) -> tuple[EpochStart, ...]:
        return self._epochs.entries()

    @property
    def largest_timestamp(self) -> int:
        """Ms; −1 where no record has one."""
        return max(segment.largest.timestamp for segment in self._segments)

    def end_offset_for_epoch(self, epoch: int) -> EpochStart | None:
        """(the greatest epoch ≤ `epoch` in this log, the offset at which it ends); None where the log cannot say."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def assign_topic_id(self, topic_id: str) -> None:
        """Writes `partition.metadata`, which says which topic of this name the log belongs to."""
        partition_metadata.write_topic_id(self._files, self.directory, topic_id)
        self.topic_id = topic_id

    # --- appending -----------------------------------------------------------------------------------

    def assign_leader_epoch(self, epoch: int) -> None:
        """At becoming leader: the epoch begins at the log end."""
        self._raise_if_failed()
        self._epochs.assign(epoch, self.log_end_offset)

    def append_as_leader(self, batch: Buffer, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Appends exactly one batch from a producer and gives it its offsets; the caller's buffer is not changed.

        Nothing is written on an error: CorruptMessageError, UnsupportedForMessageFormatError, InvalidRecordError,
        MessageTooLargeError, RecordListTooLargeError, InvalidTimestampError, OutOfOrderSequenceError,
        DuplicateSequenceError, InvalidProducerEpochError, StorageError.
        """
        self._raise_if_failed()
        header = admit(batch, self.config, now_ms)
        log_append_time = self.config.log_append_time
        if header.producer_id >= 0:
            repeated = self._producers.find_duplicate(header)
            if repeated is not None:
                stamp = repeated.timestamp if log_append_time else NO_TIMESTAMP
                return AppendInfo(repeated.base_offset, repeated.last_offset, stamp, True)
            self._producers.check(header)
        stamp = NO_TIMESTAMP
        if log_append_time:
            # Never below the last stamp, so that a clock that is set back does not disorder the log.
            stamp = max(now_ms, self._last_stamp)
            batch = bytearray(batch)
            stamp_log_append_time(batch, 0, stamp)
            header = read_header(batch)
        base_offset = self.log_end_offset
        header = header._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch)
        last_offset = base_offset + header.last_offset_delta
        size = header.size_bytes
        if leader_epoch != self._epochs.latest:
            self._epochs.assign(leader_epoch, base_offset)
        parts = (_ASSIGNED.pack(base_offset, header.batch_length, leader_epoch), memoryview(batch)[_ASSIGNED.size :])
        self._write(parts, (BatchSpan(last_offset, header.max_timestamp, size),), size)
        if log_append_time:
            self._last_stamp = stamp
        if header.producer_id >= 0:
            self._producers.update(header)
        return AppendInfo(base_offset, last_offset, stamp)

    def append_as_follower(self, batches: Buffer) -> AppendInfo:
        """Appends whole batches as the leader's log holds them; the first must begin at the log end offset.

        A partial batch at the end, as a fetch may cut it, is left out. CorruptMessageError for a batch that is damaged,
        InvalidRecordError for offsets that do not follow; nothing is written then. After a StorageError a prefix of
        whole batches may have been appended.
        """
        self._raise_if_failed()
        view = memoryview(batches)
        headers = self._validated(view)
        base_offset = self.log_end_offset
        if not headers:
            return AppendInfo(base_offset, base_offset - 1)
        start = end = 0
        spans: list[BatchSpan] = []
        taken = 0
        for index, header in enumerate(headers):
            size = header.size_bytes
            if spans and not self._fits(end - start + size, header.last_offset):
                self._append_followed(view[start:end], spans, headers[taken:index])
                start, taken, spans = end, index, []
            spans.append(BatchSpan(header.last_offset, header.max_timestamp, size))
            end += size
        self._append_followed(view[start:end], spans, headers[taken:])
        return AppendInfo(base_offset, self.log_end_offset - 1)

    def _append_followed(self, view: memoryview, spans: list[BatchSpan], headers: list[BatchHeader]) -> None:
        latest = self._epochs.latest
        for header in headers:
            if latest is None or header.partition_leader_epoch > latest:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
                latest = self._epochs.latest
        self._write((view,), spans, len(view))
        for header in headers:
            self._producers.update(header)
            if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
                self._last_stamp = header.max_timestamp

    def _validated(self, view: memoryview) -> list[BatchHeader]:
        expected = self.log_end_offset
        headers: list[BatchHeader] = []
        for position, header in iter_headers(view):
            validate_batch(view, position, header)
            if header.base_offset != expected:
                raise InvalidRecordError(f"a batch at offset {header.base_offset}, where {expected} is next")
            expected = header.next_offset
            headers.append(header)
        return headers

    def _fits(self, size: int, last_offset: int) -> bool:
        config = self.config
        return self._active.accepts(size, last_offset, config.segment_bytes, config.segment_index_bytes)

    def _write(self, parts: Sequence[Buffer], spans: Sequence[BatchSpan], size: int) -> None:
        last_offset = spans[-1].last_offset
        if not self._fits(size, last_offset):
            self._roll()
        active = self._active
        try:
            active.append(parts, spans)
        except StorageError as error:
            if error.__context__ is not None and isinstance(error.__context__, StorageError):
                self._failure = error  # what was half written could not be taken back
            raise
        self.log_end_offset = last_offset + 1

    def _roll(self) -> None:
        """The next segment begins at the log end; the state of the producers up to there is kept beside it."""
        self._active.seal()
        self._snapshots.write(self.log_end_offset, self._producers)
        segment = Segment(self.directory, self.log_end_offset, self._files, self.config.index_interval_bytes)
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self._active = segment

    # --- reading -------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upper_bound: int | None = None, *, at_least_one: bool = True) -> bytes:
        """Whole batches from the one that holds `offset`, as they are in the file, at most `max_bytes`.

        Ends at the end of a segment and before the batch that begins at or after `upper_bound` (the log end where it is
        None). `at_least_one`: the first batch is returned even if it alone is larger. Empty where nothing may be read
        yet. OffsetOutOfRangeError below the log start and past the log end.
        """
        self._raise_if_failed()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not in [{self.log_start_offset}, {self.log_end_offset}] of {self.directory.name}"
            )
        end_offset = self.log_end_offset if upper_bound is None else min(upper_bound, self.log_end_offset)
        if offset >= end_offset:
            return b""
        located = self._positions.get(offset)
        if located is None or located[1] >= located[0].size:
            located = self._locate(offset)
        segment, position = located
        data = segment.log.read(position, min(max(max_bytes, HEADER_BYTES), segment.size - position))
        length, next_offset = _whole_batches(data, max_bytes, end_offset)
        if not length:
            header = read_header(data)
            if not at_least_one or header.base_offset >= end_offset:
                return b""
            length, next_offset = header.size_bytes, header.next_offset
            data = segment.log.read(position, length)
            if len(data) < length:
                raise CorruptMessageError(f"{segment.log.path}: the batch at {position} is cut off")
        self._remember(next_offset, segment, position + length)
        return data[:length]

    def offset_for_timestamp(self, timestamp: int, upper_bound: int) -> TimestampOffset | None:
        """The earliest record at or after `timestamp` (ms) below `upper_bound` (exclusive); exact."""
        self._raise_if_failed()
        return lookup.offset_for_timestamp(self._segments, timestamp, self.log_start_offset, upper_bound)

    def offset_of_max_timestamp(self, upper_bound: int) -> TimestampOffset | None:
        """The record with the largest timestamp below `upper_bound` (exclusive), the earliest of equals."""
        self._raise_if_failed()
        return lookup.offset_of_max_timestamp(self._segments, self.log_start_offset, upper_bound)

    def _locate(self, offset: int) -> tuple[Segment, int]:
        slot = max(bisect_right(self._base_offsets, offset) - 1, 0)
        for segment in self._segments[slot : slot + 2]:
            found = segment.find(offset)
            if found is not None:
                return segment, found[0]
        raise CorruptMessageError(f"{self.directory.name}: no batch holds offset {offset}")

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        if len(self._positions) >= _POSITIONS_KEPT and offset not in self._positions:
            del self._positions[next(iter(self._positions))]
        self._positions[offset] = (segment, position)

    # --- shortening ----------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Removes all from `offset` on, and with it the whole batch that holds it. False where the log ends before it.

        Below the log start nothing can remain: the log then starts and ends at `offset`.
        """
        self._raise_if_failed()
        if offset >= self.log_end_offset:
            return False
        if offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self._lower_recovery_point(offset)
        while len(self._segments) > 1 and self._active.base_offset > offset:
            self._drop_last_segment()
        self._active.truncate_to(offset)
        if self._active.next_offset < self.log_start_offset:
            # The batch that went held the log start too.
            self.truncate_fully_and_start_at(offset)
        else:
            self._settle_after_truncation()
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes everything; the log starts and ends at `offset`."""
        self._raise_if_failed()
        self._lower_recovery_point(offset)
        for segment in reversed(self._segments):
            segment.delete()
        self._segments[:] = [Segment(self.directory, offset, self._files, self.config.index_interval_bytes)]
        self._base_offsets[:] = [offset]
        self._active = self._segments[0]
        self.log_start_offset = offset
        self._epochs.clear()
        self._snapshots.keep_only(())
        self._settle_after_truncation()

    def advance_log_start_offset(self, offset: int) -> bool:
        """Makes all below `offset` unreadable; False where it was already. OffsetOutOfRangeError past the log end."""
        if offset > self.log_end_offset:
            raise OffsetOutOfRangeError(f"offset {offset} is past the end {self.log_end_offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        return True

    def _drop_last_segment(self) -> None:
        self._segments.pop().delete()
        self._base_offsets.pop()
        self._active = self._segments[-1]

    def _lower_recovery_point(self, offset: int) -> None:
        self._positions.clear()
        with self._recovery_point_lock:
            self._truncations += 1
            lowered = offset < self.recovery_point
            self.recovery_point = min(offset, self.recovery_point)
        if lowered and self._before_truncation is not None:
            self._before_truncation(offset)

    def _settle_after_truncation(self) -> None:
        self.log_end_offset = self._active.next_offset
        with self._recovery_point_lock:
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self._epochs.truncate_from_end(self.log_end_offset)
        self._producers = recovery.rebuild_producers(self._segments, self._snapshots)

    # --- durability ----------------------------------------------------------------------------------

    def flush(self, *, rolled_only: bool = False) -> None:
        """Syncs what is not synced yet (with `rolled_only` not the active segment) and raises the recovery point.

        Takes as long as the disk does. After a failed sync nobody knows what is on the disk, so the log refuses
        further appends.
        """
        self._raise_if_failed()
        with self._recovery_point_lock:
            truncations, recovery_point = self._truncations, self.recovery_point
            target = self._active.base_offset if rolled_only else self.log_end_offset
        if target <= recovery_point:
            return
        try:
            for segment in list(self._segments):
                if segment.next_offset > recovery_point and segment.base_offset < target:
                    segment.sync()
            self._epochs.sync()
            self._files.sync_directory(self.directory)
        except StorageError as error:
            if self._abandoned:
                return  # deleted or set aside meanwhile: nothing is left to keep
            self._failure = error
            raise
        with self._recovery_point_lock:
            if truncations == self._truncations:
                self.recovery_point = max(self.recovery_point, target)

    def close(self) -> None:
        """Leaves everything synced and complete, so that the next open needs no recovery."""
        if self._failure is None:
            self._active.seal()
            if self._snapshots.offsets()[-1:] != [self.log_end_offset]:
                self._snapshots.write(self.log_end_offset, self._producers)
            self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Gives the files back as they are."""
        self._abandoned = True
        for segment in self._segments:
            segment.close()

    def fail(self, error: StorageError) -> None:
        """The disk below has failed: every later read and write raises StorageError. May be called on any thread."""
        if self._failure is None:
            self._failure = error

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise StorageError(f"{self.directory.name} is offline: {self._failure}")


def _whole_batches(data: bytes, max_bytes: int, end_offset: int) -> tuple[int, int]:
    """How many bytes are whole batches below `end_offset`, and the offset after them."""
    position, next_offset, size = 0, -1, min(len(data), max_bytes)
    outline = _OUTLINE.unpack_from
    while size - position >= HEADER_BYTES:
        base_offset, batch_length, last_offset_delta = outline(data, position)
        if batch_length <= 0:
            raise CorruptMessageError(f"batch length {batch_length} after offset {next_offset}")
        following = position + batch_length + LENGTH_OVERHEAD
        if base_offset >= end_offset or following > size:
            break
        position, next_offset = following, base_offset + last_offset_delta + 1
    return position, next_offset

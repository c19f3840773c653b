"""One segment of a log: a `.log` of batches and its two indexes, named by the first offset they may hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from storage.file_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from storage.files import File, Files
from storage.offset_index import OffsetIndex, OffsetPosition
from storage.scan import header_at, scan_checked, scan_headers
from storage.segment_files import SegmentFiles
from storage.time_index import IndexedTime, TimeIndex
from tidelog.errors import CorruptMessageError, StorageError
from tidelog.model import NO_TIMESTAMP, Buffer
from tidelog.records import BatchHeader

MAX_RELATIVE_OFFSET = 2**31 - 1

_LOOKED_AT_ONCE = 20 * 1024


class DamagedIndexError(Exception):
    """An index contradicts the log; the log is right. Never leaves this module's callers."""


class BatchSpan(NamedTuple):
    """What the indexes keep of one batch."""

    last_offset: int
    max_timestamp: int
    size_bytes: int


class Segment:
    """Consecutive batches in one file.

    base_offset   no batch begins before it; the name of the files
    size          bytes of the `.log` that hold whole batches: where the next append goes
    next_offset   one past the last offset in the segment; base_offset while it is empty
    largest       the largest timestamp (ms, −1 for none) and the last offset of the first batch that reached it
    """

    def __init__(
        self, directory: Path, base_offset: int, files: Files, index_interval_bytes: int = 4096, suffix: str = ""
    ) -> None:
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self._files = SegmentFiles(directory, base_offset, files, suffix)
        self._open_files()
        self.next_offset = base_offset
        self.largest = IndexedTime(NO_TIMESTAMP, base_offset)

    def _open_files(self) -> None:
        self.log: File = self._files.open(LOG_SUFFIX)
        self.offset_index = OffsetIndex(self._files.open(INDEX_SUFFIX), self.base_offset)
        self.time_index = TimeIndex(self._files.open(TIME_INDEX_SUFFIX), self.base_offset)
        self.size = self.log.size()
        self._first_timestamp: int | None = None

    def reopened(self) -> Segment:
        """Another object of the same segment, loaded from the files."""
        files = self._files
        segment = Segment(files.directory, self.base_offset, files.files, self.index_interval_bytes, files.suffix)
        segment.load()
        return segment

    @property
    def largest(self) -> IndexedTime:
        return IndexedTime(self._largest_timestamp, self._largest_offset)

    @largest.setter
    def largest(self, reached: IndexedTime) -> None:
        self._largest_timestamp, self._largest_offset = reached

    @property
    def first_timestamp(self) -> int | None:
        """The largest timestamp (ms, −1 for none) of the first batch; None while there is none."""
        if self._first_timestamp is None and self.size:
            self._first_timestamp = header_at(self.log, 0, self.size).max_timestamp
        return self._first_timestamp

    # --- opening -------------------------------------------------------------------------------------

    def load(self) -> BatchHeader | None:
        """Finds the end and the largest timestamp, by indexes that the log confirms, or else by new ones.

        Returns the header of the last batch that it came past. CorruptMessageError where the log itself does not
        consist of whole batches.
        """
        try:
            return self._load_from_indexes()
        except (DamagedIndexError, CorruptMessageError):
            return self.rebuild_indexes()

    def _load_from_indexes(self) -> BatchHeader | None:
        if self.offset_index.ragged or self.time_index.ragged:
            raise DamagedIndexError
        entry, reached = self.offset_index.last, self.time_index.last
        if entry is not None:
            self._confirm(entry)
        indexed_end = self.offset_index.last_position
        header: BatchHeader | None = None
        self.next_offset = self.base_offset
        self.largest = IndexedTime(NO_TIMESTAMP, self.base_offset)
        start = self._start_of(reached.offset) if reached is not None else 0
        for position, header in scan_headers(self.log, start, self.size):
            self._expect_offset(header, position)
            if header.max_timestamp > self._largest_timestamp:
                self.largest = IndexedTime(header.max_timestamp, header.last_offset)
            # What the entries say together with what they leave out: the time index has seen every batch up to the last
            # that the offset index names, and no more bytes follow that one than may go without an entry.
            if (
                position <= indexed_end
                and entry is not None
                and self._largest_timestamp > self.time_index.last_timestamp
            ):
                raise DamagedIndexError
            if position - indexed_end > self.index_interval_bytes:
                raise DamagedIndexError
            if reached is not None and header.last_offset >= reached.offset:
                if self.largest != reached:
                    raise DamagedIndexError
                reached = None
            self.next_offset = header.last_offset + 1
        if reached is not None:
            raise DamagedIndexError
        return header

    def rebuild_indexes(self) -> BatchHeader | None:
        """Writes both indexes anew from the batches, which are checked: indexes of a damaged log would hide it.

        CorruptMessageError where a batch is not as it was written.
        """
        for _ in scan_checked(self.log, 0, self.size, self.base_offset):
            pass  # all of it, before anything that may still be right is thrown away
        self._clear_indexes()
        header: BatchHeader | None = None
        for position, header in scan_headers(self.log, 0, self.size):
            self._expect_offset(header, position)
            self._note(position, header.last_offset, header.max_timestamp)
        self._write_out_indexes()  # of a sealed segment nobody else would
        return header

    def recover(
        self, position: int, expected_offset: int, *, limit: int | None = None, holes: bool = True, synced_to: int = 0
    ) -> Iterator[BatchHeader]:
        """Checks every batch from `position` on, yields each, and cuts the file before the first that is bad.

        `expected_offset` is the least offset that the batch at `position` may begin with; `limit` and `holes` as
        `scan_checked`. The indexes below `position` must have been confirmed before (`recovery_start`); the rest of
        them is written anew. What is cut off below `synced_to` is set aside first.
        """
        if position == 0:
            self._clear_indexes()
        else:
            self.offset_index.truncate_to(expected_offset)
            self.time_index.truncate_to(expected_offset)
            self.next_offset = expected_offset
            self.largest = self._largest_below(position)
        end = position
        with contextlib.suppress(CorruptMessageError):
            for at, header, _ in scan_checked(
                self.log, position, self.size, self.next_offset, limit=limit, holes=holes
            ):
                self._expect_offset(header, at)
                self._note(at, header.last_offset, header.max_timestamp)
                end = at + header.size_bytes
                yield header
        if end < self.size:
            if self.next_offset < synced_to:
                self._files.set_tail_aside(self.log, end, self.size, self.next_offset)
            self.log.truncate(end)
            self.size = end

    def recovery_start(self, recovery_point: int) -> tuple[int, int]:
        """(position, offset) of a batch at or below the recovery point from which the checks must run.

        All before it was synced, indexes included. The start of the segment where the indexes cannot be trusted.
        """
        try:
            if self.offset_index.ragged or self.time_index.ragged:
                raise DamagedIndexError
            entry = self.offset_index.floor(recovery_point - 1)
            if entry is None:
                return 0, self.base_offset
            header = self._confirm(entry)
            self._largest_below(entry.position)
            return entry.position, header.base_offset
        except (DamagedIndexError, CorruptMessageError):
            return 0, self.base_offset

    def _largest_below(self, position: int) -> IndexedTime:
        """The running maximum before the batch at `position`; DamagedIndexError where the time index has it wrong."""
        header = header_at(self.log, position, self.size)
        reached = self.time_index.last_before(header.base_offset)
        known = reached.timestamp if reached is not None else NO_TIMESTAMP
        # The time index was brought up to date at each entry of the offset index: here the last of those before.
        entry = self.offset_index.floor(header.base_offset - 1)
        largest = IndexedTime(NO_TIMESTAMP, self.base_offset)
        for at, header in scan_headers(self.log, self._start_of(reached.offset) if reached else 0, position):
            if header.max_timestamp > largest.timestamp:
                largest = IndexedTime(header.max_timestamp, header.last_offset)
            if entry is not None and at <= entry.position and largest.timestamp > known:
                raise DamagedIndexError
            if reached is not None and header.last_offset >= reached.offset:
                if largest != reached:
                    raise DamagedIndexError
                reached = None
        return largest

    # --- appending -----------------------------------------------------------------------------------

    def append(self, parts: Sequence[Buffer], batches: Sequence[BatchSpan | tuple[int, int, int]]) -> None:
        """Writes whole batches at the end; each has a `BatchSpan`, or its fields in their order.

        After a StorageError the segment is as it was before.

        A StorageError from the way back chains the first one; the segment must not be used any more.
        """
        size, next_offset = self.size, self.next_offset
        largest_timestamp, largest_offset = self._largest_timestamp, self._largest_offset
        try:
            self.log.write(size, parts)
            position = size
            for last_offset, max_timestamp, size_bytes in batches:
                self._note(position, last_offset, max_timestamp)
                position += size_bytes
            self.size = position
        except StorageError:
            self.next_offset = next_offset
            self._largest_timestamp, self._largest_offset = largest_timestamp, largest_offset
            self.log.truncate(size)
            self.offset_index.truncate_to(next_offset)
            self.time_index.truncate_to(next_offset)
            raise

    def indexes_fit(self, index_bytes: int) -> bool:
        """Whether each index may grow by an entry; in the time index one more is kept for the entry at closing."""
        return (self.offset_index.count + 1) * OffsetIndex.ENTRY.size <= index_bytes and (
            self.time_index.count + 2
        ) * TimeIndex.ENTRY.size <= index_bytes

    def _note(self, position: int, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self._largest_timestamp:
            self._largest_timestamp, self._largest_offset = max_timestamp, last_offset
        if position - self.offset_index.last_position > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self._largest_timestamp, self._largest_offset)
        self.next_offset = last_offset + 1

    def seal(self) -> None:
        """The time index gets its last entry: from now on it alone tells the segment's largest timestamp.

        Both indexes are whole in their files then.
        """
        self.time_index.maybe_append(*self.largest)
        self._write_out_indexes()

    def _write_out_indexes(self) -> None:
        self.offset_index.write_out()
        self.time_index.write_out()

    def _expect_offset(self, header: BatchHeader, position: int) -> None:
        if header.base_offset < self.next_offset or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise CorruptMessageError(f"{self.log.path}: offset {header.base_offset} at {position} cannot be")

    # --- finding -------------------------------------------------------------------------------------

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """(position, header) of the first batch that ends at or after `offset`; None past the end."""
        try:
            return self._find(offset)
        except DamagedIndexError:
            self.rebuild_indexes()
            return self._find(offset)

    def _find(self, offset: int) -> tuple[int, BatchHeader] | None:
        start, following = 0, self.base_offset
        entry = self.offset_index.floor(offset)
        if entry is not None and entry.offset <= offset:
            header = self._confirm(entry)
            if entry.offset == offset:
                return entry.position, header
            start, following = entry.position + header.size_bytes, entry.offset + 1
        expected_offset = following
        for position, header in scan_headers(self.log, start, self.size):
            if header.base_offset != following:
                break
            if header.last_offset >= offset:
                return position, header
            following = header.next_offset
        # Compaction left a hole, or a header is damaged so that the batch looked for would be passed over.
        for position, header, _ in self.checked_from(start, expected_offset):
            if header.last_offset >= offset:
                return position, header
        return None

    def checked_from(
        self, position: int, expected_offset: int | None = None, *, beyond: bool = False
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Every batch from `position` on, where one begins, as `scan_checked`; `beyond`: but that of an index entry."""
        if expected_offset is None:
            expected_offset = self.base_offset
            if position:
                header = header_at(self.log, position, self.size)
                expected_offset = header.next_offset if beyond else header.base_offset
                position += header.size_bytes if beyond else 0
        return scan_checked(self.log, position, self.size, expected_offset, at_once=_LOOKED_AT_ONCE)

    def start_of(self, offset: int) -> int:
        """At most one index interval before the first batch that ends at or after `offset`, or at it."""
        try:
            return self._start_of(offset)
        except DamagedIndexError:
            self.rebuild_indexes()
            return self._start_of(offset)

    def start_for_timestamp(self, timestamp: int) -> int:
        """A position at or before the first batch that reaches `timestamp`, at most one index interval away from it."""
        try:
            return self._start_for_timestamp(timestamp)
        except DamagedIndexError:
            self.rebuild_indexes()
            return self._start_for_timestamp(timestamp)

    def confirmed_maximum_before(self, offset: int) -> IndexedTime | None:
        """The last time index entry whose batch ends before `offset`."""
        reached = self.time_index.last_before(offset)
        try:
            if reached is not None:
                self._confirm_time(reached)
            return reached
        except DamagedIndexError:
            self.rebuild_indexes()
            return self.time_index.last_before(offset)

    def _start_for_timestamp(self, timestamp: int) -> int:
        # Both neighbours of the target are held against the log, and against the order of the file: where they are
        # right, no damage elsewhere can have misled the search between them.
        times = self.time_index
        slot = times.ceiling_slot(timestamp)
        if slot:
            below = times.entry(slot - 1)
            earlier = times.entry(slot - 2).timestamp if slot > 1 else NO_TIMESTAMP
            if not earlier < below.timestamp < timestamp:
                raise DamagedIndexError
            self._confirm_time(below)
        if slot == len(times):
            if timestamp <= times.last_timestamp:
                raise DamagedIndexError
            entry = self.offset_index.last
        else:
            reached = times.entry(slot)
            self._confirm_time(reached)
            entry = self.offset_index.floor(reached.offset - 1)
        if entry is None:
            return 0
        self._confirm(entry)
        return entry.position

    def _confirm_time(self, entry: IndexedTime) -> None:
        found = self._find(entry.offset)
        if found is None or found[1].last_offset != entry.offset or found[1].max_timestamp != entry.timestamp:
            raise DamagedIndexError

    def _start_of(self, offset: int) -> int:
        """The position of a confirmed batch at or before the one that ends at or after `offset`."""
        entry = self.offset_index.floor(offset)
        if entry is None or entry.offset > offset:
            return 0
        self._confirm(entry)
        return entry.position

    def _confirm(self, entry: OffsetPosition) -> BatchHeader:
        """The header of the batch that an index entry names; DamagedIndexError if it is another batch, or none."""
        if entry.position < 0:
            raise DamagedIndexError
        try:
            header = header_at(self.log, entry.position, self.size)
        except CorruptMessageError:
            raise DamagedIndexError from None
        if header.last_offset != entry.offset or header.base_offset < self.base_offset:
            raise DamagedIndexError
        return header

    # --- ending --------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Removes the batch that holds `offset` and all after it."""
        found = self.find(offset)
        if found is None:
            return
        position, header = found
        self.offset_index.truncate_to(header.base_offset)
        self.time_index.truncate_to(header.base_offset)
        self.log.truncate(position)
        self.size = position
        self._first_timestamp = None
        self.load()

    def sync(self) -> None:
        """The `.log` first: an index must not be newer than what it points at."""
        self.log.sync()
        self.offset_index.sync()
        self.time_index.sync()

    def close(self) -> None:
        self.log.close()
        self.offset_index.close()
        self.time_index.close()

    def rename(self, suffix: str) -> None:
        """As `SegmentFiles.rename`."""
        self.close()
        self._files.rename(suffix)
        self._open_files()

    def retire(self) -> None:
        """As `SegmentFiles.retire`."""
        self.close()
        self._files.retire()

    def delete(self) -> None:
        """As `SegmentFiles.delete`."""
        self.close()
        self._files.delete()

    def set_aside(self) -> str:
        """As `SegmentFiles.set_aside`."""
        self.close()
        return self._files.set_aside()

    def _clear_indexes(self) -> None:
        self.offset_index.keep(0)
        self.time_index.keep(0)
        self.next_offset = self.base_offset
        self.largest = IndexedTime(NO_TIMESTAMP, self.base_offset)

"""One segment of a log: a `.log` of batches and its two indexes, named by the base offset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from storage.file_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from storage.files import File, Files
from storage.segments.index_lookup import DamagedIndexError, IndexedLog, Start
from storage.segments.offset_index import OffsetIndex
from storage.segments.scan import header_at, scan_checked, scan_headers
from storage.segments.segment_files import SegmentFiles
from storage.segments.time_index import IndexedTime, TimeIndex
from storage.steps import Steps
from tidelog.errors import CorruptMessageError, StorageError
from tidelog.model import NO_TIMESTAMP, Buffer
from tidelog.records import BatchHeader

T = TypeVar("T")

_REWRITTEN_AT_ONCE = 1 << 20


class BatchSpan(NamedTuple):
    """The fields of a batch that the indexes need; the largest timestamp is in ms, −1 for none."""

    last_offset: int
    max_timestamp: int
    size_bytes: int


class Segment:
    """Consecutive batches in one file.

    base_offset   no batch begins before it; the files are named by it
    size          bytes of the `.log` that hold whole batches; the next append goes there
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
        offsets, times = self._files.open(INDEX_SUFFIX), self._files.open(TIME_INDEX_SUFFIX)
        try:
            self.offset_index = OffsetIndex(offsets, self.base_offset)
            self.time_index = TimeIndex(times, self.base_offset)
            self.size = self.log.size()
        except StorageError:
            for file in (self.log, offsets, times):
                file.close()  # no other object refers to them yet
            raise
        self._first_timestamp: int | None = None

    def reopened(self) -> Segment:
        """Return a new object of the same segment, loaded from the files (`load`). CorruptMessageError."""
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
        """Return the largest timestamp (ms, −1 for none) of the first batch; None if there is no batch."""
        if self._first_timestamp is None and self.size:
            self._first_timestamp = header_at(self.log, 0, self.size).max_timestamp
        return self._first_timestamp

    # --- opening -------------------------------------------------------------------------------------

    def load(self) -> BatchHeader | None:
        """Set `next_offset` and `largest` from the indexes and the batches after them; rebuild the indexes if needed.

        Return the header of the last batch; None if there is none. CorruptMessageError if the log does not consist of
        whole batches.
        """
        try:
            self.next_offset, self.largest, last_batch = self._indexed.summarize(self.index_interval_bytes)
            return last_batch
        except (DamagedIndexError, CorruptMessageError):
            return self.rebuild_indexes()

    def rebuild_indexes(self) -> BatchHeader | None:
        """Rebuild both indexes from the batches. Return the header of the last batch; None if there is none.

        Every batch is checked first, because indexes of a damaged log would hide the damage. CorruptMessageError if a
        batch is damaged; the indexes are then unchanged.
        """
        for _ in scan_checked(self.log, 0, self.size, self.base_offset):
            pass  # check everything before any index, which may still be right, is discarded
        self._clear_indexes()
        indexed = self._indexed
        header: BatchHeader | None = None
        for position, header in scan_headers(self.log, 0, self.size):
            indexed.expect_offset(header, position, self.next_offset)
            self._index_batch(position, header.last_offset, header.max_timestamp)
        self._write_out_indexes()  # a sealed segment gets no later write
        return header

    def recover(
        self,
        position: int,
        expected_offset: int,
        *,
        on_loss: Callable[[], None],
        limit: int | None = None,
        holes: bool = True,
        flushed_to: int = 0,
    ) -> Iterator[BatchHeader]:
        """Check every batch from `position` on, yield its header, and truncate the file before the first invalid one.

        `expected_offset` is the lowest offset at which the batch at `position` may begin. `limit` and `holes` are those
        of `scan_checked`. `recovery_start` must have confirmed the indexes below `position`; the rest of them is
        rebuilt. `on_loss` is called before any bytes are removed. If the removed part begins below the offset
        `flushed_to`, its bytes are set aside first. The caller must exhaust the iterator.
        """
        indexed = self._indexed
        if position == 0:
            self._clear_indexes()
        else:
            self.offset_index.truncate_to(expected_offset)
            self.time_index.truncate_to(expected_offset)
            self.next_offset = expected_offset
            self.largest = indexed.largest_below(position)
        end = position
        with contextlib.suppress(CorruptMessageError):
            for at, header, _ in scan_checked(
                self.log, position, self.size, self.next_offset, limit=limit, holes=holes
            ):
                indexed.expect_offset(header, at, self.next_offset)
                self._index_batch(at, header.last_offset, header.max_timestamp)
                end = at + header.size_bytes
                yield header
        if end < self.size:
            on_loss()
            if self.next_offset < flushed_to:
                self._files.set_tail_aside(self.log, end, self.size, self.next_offset)
            self.log.truncate(end)
            self.size = end

    def rewrite(self, position: int) -> None:
        """Write all bytes from `position` on again, unchanged, so that the next flush brings them to the disk."""
        for at in range(position, self.size, _REWRITTEN_AT_ONCE):
            self.log.write(at, (self.log.read(at, min(_REWRITTEN_AT_ONCE, self.size - at)),))

    def recovery_start(self, recovery_point: int) -> tuple[int, int]:
        """Return (position, base offset) of the batch at which the checks must begin: an indexed one that was flushed.

        Everything before it was flushed, the indexes included. If the indexes are wrong or lead to no such batch, the
        checks begin at the start of the segment.
        """
        try:
            return self._indexed.batch_below(recovery_point) or (0, self.base_offset)
        except (DamagedIndexError, CorruptMessageError):
            return 0, self.base_offset

    # --- appending -----------------------------------------------------------------------------------

    def append(self, parts: Sequence[Buffer], batches: Sequence[BatchSpan | tuple[int, int, int]]) -> None:
        """Write whole batches at the end; each has a `BatchSpan`, or its fields as a tuple.

        After a StorageError the segment is unchanged. If the undo raises a StorageError too, the context of that error
        is the first one, and the segment must not be used any more.
        """
        size, next_offset = self.size, self.next_offset
        largest_timestamp, largest_offset = self._largest_timestamp, self._largest_offset
        try:
            self.log.write(size, parts)
            position = size
            for last_offset, max_timestamp, size_bytes in batches:
                self._index_batch(position, last_offset, max_timestamp)
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
        """Return whether each index may grow by an entry and still have at most `index_bytes`.

        The time index reserves one more entry for the sealing.
        """
        return (self.offset_index.count + 1) * OffsetIndex.ENTRY.size <= index_bytes and (
            self.time_index.count + 2
        ) * TimeIndex.ENTRY.size <= index_bytes

    def _index_batch(self, position: int, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self._largest_timestamp:
            self._largest_timestamp, self._largest_offset = max_timestamp, last_offset
        if position - self.offset_index.last_position > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self._largest_timestamp, self._largest_offset)
        self.next_offset = last_offset + 1

    def seal(self) -> None:
        """Append the last entry to the time index, and write both indexes to their files.

        From then on the time index alone shows the segment's largest timestamp.
        """
        self.time_index.maybe_append(*self.largest)
        self._write_out_indexes()

    def _write_out_indexes(self) -> None:
        self.offset_index.write_out()
        self.time_index.write_out()

    # --- finding -------------------------------------------------------------------------------------

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return (position, header) of the first batch that ends at or after `offset`; None past the end."""
        return self._with_valid_indexes(lambda indexed: indexed.find(offset))

    def checked_from(self, start: Start) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield (position, header, bytes) of every batch from `start` on.

        CorruptMessageError at the first invalid one.
        """
        return self._indexed.checked_from(start)

    def position_before(self, offset: int) -> Start:
        """Return a start at, or at most one index interval before, the first batch that ends at or after `offset`."""
        return self._with_valid_indexes(lambda indexed: indexed.position_before(offset))

    def from_timestamp(self, timestamp: int, start_offset: int) -> Steps[Iterator[tuple[int, BatchHeader, memoryview]]]:
        """Return the steps that lead to checked batches.

        Each batch before them has only timestamps below `timestamp`, or ends before `start_offset`. Wrong indexes are
        rebuilt, and the look-up is repeated.
        """
        return self._steps_with_valid_indexes(lambda indexed: indexed.from_timestamp(timestamp, start_offset))

    def confirmed_maximum_before(self, offset: int) -> Steps[IndexedTime | None]:
        """Return the steps that lead to the last time index entry whose batch ends before `offset`, or None.

        As `IndexedLog.maximum_before`, but wrong indexes are rebuilt, and the look-up is repeated.
        """
        return self._steps_with_valid_indexes(lambda indexed: indexed.maximum_before(offset))

    @property
    def _indexed(self) -> IndexedLog:
        """Return the log and its indexes with their current size."""
        return IndexedLog(self.base_offset, self.log, self.size, self.offset_index, self.time_index)

    def _with_valid_indexes(self, ask: Callable[[IndexedLog], T]) -> T:
        """Return the answer of the indexes. If the log contradicts them, rebuild them and ask again."""
        try:
            return ask(self._indexed)
        except DamagedIndexError:
            self.rebuild_indexes()
            return ask(self._indexed)

    def _steps_with_valid_indexes(self, ask: Callable[[IndexedLog], Steps[T]]) -> Steps[T]:
        """Return as `_with_valid_indexes`, for a question that takes several steps."""
        try:
            return (yield from ask(self._indexed))
        except DamagedIndexError:
            self.rebuild_indexes()
            return (yield from ask(self._indexed))

    # --- ending --------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove the first batch that ends at or after `offset`, and everything after it.

        Do nothing if no batch ends at or after `offset`.
        """
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

    def flush(self) -> None:
        """Flush the `.log`, then the indexes, because an index must not be newer than the batches that it names."""
        self.log.fsync()
        self.flush_indexes()

    def flush_indexes(self) -> None:
        """Flush the index entries that no flush has covered yet. Do nothing if there are none."""
        self.offset_index.flush()
        self.time_index.flush()

    def close(self) -> None:
        with contextlib.ExitStack() as closes:  # all files are closed, also after an error
            for file in (self.time_index, self.offset_index, self.log):
                closes.callback(file.close)

    def rename(self, suffix: str) -> None:
        """Close the files, give the `.log` and its indexes the second suffix `suffix`, and open them again."""
        self.close()
        self._files.rename(suffix)
        self._open_files()

    def continue_in(self, directory: Path) -> None:
        """Use the files in this directory from now on, because the directory of the log gets this name."""
        self._files = SegmentFiles(directory, self.base_offset, self._files.files, self._files.suffix)
        self.log.close()
        self.log = self._files.open(LOG_SUFFIX)
        self.offset_index.continue_in(self._files.open(INDEX_SUFFIX))
        self.time_index.continue_in(self._files.open(TIME_INDEX_SUFFIX))

    def retire(self) -> None:
        """Close the files and rename them to `.deleted`, so that the log no longer has the segment."""
        self.close()
        self._files.retire()

    def delete(self) -> None:
        """Close and remove the files; no error if some do not exist."""
        self.close()
        self._files.delete()

    def set_aside(self) -> str:
        """Close the files, rename the `.log` to a free `.stray` name, remove the others, and return that name."""
        self.close()
        return self._files.set_aside()

    def _clear_indexes(self) -> None:
        self.offset_index.keep(0)
        self.time_index.keep(0)
        self.next_offset = self.base_offset
        self.largest = IndexedTime(NO_TIMESTAMP, self.base_offset)

"""Look-ups in a segment's `.log` through its two indexes.

Every answer is confirmed by the batches that it leads to, so a damaged index costs time but gives no wrong answer.
The module changes no file. If an index contradicts the log, it raises DamagedIndexError and the segment rebuilds both.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from storage.files import File
from storage.segments.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex, OffsetPosition
from storage.segments.scan import header_at, scan_checked, scan_headers
from storage.segments.time_index import IndexedTime, TimeIndex
from storage.steps import PAUSE, Steps
from tidelog.errors import CorruptMessageError
from tidelog.model import NO_TIMESTAMP
from tidelog.records import BatchHeader

_LOOKED_AT_ONCE = 20 * 1024
#: The number of headers that are read in a few ms. A look-up pauses after that many.
HEADERS_PER_STEP = 1_000


class DamagedIndexError(Exception):
    """An index contradicts the log, and the log is right. The segment catches this error."""


class Extent(NamedTuple):
    """The extent of a segment's batches; the fields are those of `Segment`.

    `last_batch` is the last batch of the segment; None if the segment is empty.
    """

    next_offset: int
    largest: IndexedTime
    last_batch: BatchHeader | None


class Start(NamedTuple):
    """The start of a scan: byte `position`, where a batch at or after `expected_offset` begins.

    epoch_before   the leader epoch of the batch before it; −1 if unknown
    """

    position: int
    expected_offset: int
    epoch_before: int = -1


class IndexedLog(NamedTuple):
    """The first `size` bytes of the `.log`, and its indexes.

    The methods raise DamagedIndexError if they find an index wrong, and CorruptMessageError if they find the log
    damaged.
    """

    base_offset: int
    log: File
    size: int
    offset_index: OffsetIndex
    time_index: TimeIndex

    # --- opening -------------------------------------------------------------------------------------

    def summarize(self, index_interval_bytes: int) -> Extent:
        """Return the extent of all batches, by reading headers from the last index entries on.

        DamagedIndexError if the log contradicts the last entries, or if entries are missing after them.
        """
        self._raise_if_partial_entry()
        entry, reached = self.offset_index.last, self.time_index.last
        if entry is not None:
            self._confirm(entry)
        indexed_end, indexed_timestamp = self.offset_index.last_position, self.time_index.last_timestamp
        next_offset, largest = self.base_offset, IndexedTime(NO_TIMESTAMP, self.base_offset)
        header: BatchHeader | None = None
        start = self.position_before(reached.offset).position if reached is not None else 0
        for position, header in scan_headers(self.log, start, self.size):
            self.expect_offset(header, position, next_offset)
            if header.max_timestamp > largest.timestamp:
                largest = IndexedTime(header.max_timestamp, header.last_offset)
            # Absent entries prove something too. The time index has seen every batch up to the last entry of the offset
            # index, and at most `index_interval_bytes` follow that entry.
            if position <= indexed_end and entry is not None and largest.timestamp > indexed_timestamp:
                raise DamagedIndexError
            if position - indexed_end > index_interval_bytes:
                raise DamagedIndexError
            if reached is not None and header.last_offset >= reached.offset:
                if largest != reached:
                    raise DamagedIndexError
                reached = None
            next_offset = header.last_offset + 1
        if reached is not None:
            raise DamagedIndexError
        return Extent(next_offset, largest, header)

    def batch_below(self, recovery_point: int) -> tuple[int, int] | None:
        """Return (position, base offset) of the last indexed batch that ends below the recovery point, or None.

        The indexes were compared with the log there, and are right up to that batch.
        """
        self._raise_if_partial_entry()
        entry = self.offset_index.floor(recovery_point - 1)
        if entry is None:
            return None
        header = self._confirm(entry)
        self.largest_below(entry.position)
        return entry.position, header.base_offset

    def largest_below(self, position: int) -> IndexedTime:
        """Return the largest timestamp before the batch at `position`, with the last offset of its first batch.

        (−1, the segment's base offset) if no batch before it has a timestamp.
        """
        header = header_at(self.log, position, self.size)
        reached = self.time_index.last_before(header.base_offset)
        known = reached.timestamp if reached is not None else NO_TIMESTAMP
        # The time index is brought up to date at each entry of the offset index. Here the last one before counts.
        entry = self.offset_index.floor(header.base_offset - 1)
        largest = IndexedTime(NO_TIMESTAMP, self.base_offset)
        start = self.position_before(reached.offset).position if reached is not None else 0
        for at, header in scan_headers(self.log, start, position):
            if header.max_timestamp > largest.timestamp:
                largest = IndexedTime(header.max_timestamp, header.last_offset)
            if entry is not None and at <= entry.position and largest.timestamp > known:
                raise DamagedIndexError
            if reached is not None and header.last_offset >= reached.offset:
                if largest != reached:
                    raise DamagedIndexError
                reached = None
        return largest

    def expect_offset(self, header: BatchHeader, position: int, next_offset: int) -> None:
        """Raise CorruptMessageError if the batch begins before `next_offset`, or ends too far after the base offset."""
        if header.base_offset < next_offset or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise CorruptMessageError(
                f"{self.log.path}: the batch at position {position} has the impossible base offset {header.base_offset}"
            )

    # --- finding -------------------------------------------------------------------------------------

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return (position, header) of the first batch that ends at or after `offset`; None past the end."""
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
        # Compaction left a gap, or a header is damaged, so that the wanted batch could be skipped. Check every batch.
        for position, header, _ in self.checked_from(Start(start, expected_offset)):
            if header.last_offset >= offset:
                return position, header
        return None

    def checked_from(self, start: Start) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield (position, header, bytes) of every batch from `start` on.

        CorruptMessageError at the first invalid one.
        """
        return scan_checked(
            self.log,
            start.position,
            self.size,
            start.expected_offset,
            epoch_before=start.epoch_before,
            at_once=_LOOKED_AT_ONCE,
        )

    def position_before(self, offset: int) -> Start:
        """Return a start at, or at most one index interval before, the first batch that ends at or after `offset`."""
        entry = self.offset_index.floor(offset)
        if entry is None or entry.offset > offset:
            return Start(0, self.base_offset)
        return Start(entry.position, self._confirm(entry).base_offset)

    def from_timestamp(self, timestamp: int, start_offset: int) -> Steps[Iterator[tuple[int, BatchHeader, memoryview]]]:
        """Return checked batches. Each one before them is below `timestamp`, or ends before `start_offset`.

        The first returned batches may be too early as well. Batches that are skipped from the index entry on are
        checked too, because a damaged header may hide the answer.
        """
        start, reached = yield from self._start_for_timestamp(timestamp)
        if start_offset > self.base_offset and (least := self.position_before(start_offset)).position > start.position:
            start, reached = least, None  # it does not depend on the time index
        batches = self.checked_from(start)
        if reached is None:
            return batches
        for batch in batches:
            header = batch[1]
            if header.max_timestamp >= timestamp or header.last_offset >= reached.offset:
                if (header.max_timestamp, header.last_offset) != reached:
                    self._confirm_time(reached)
                return chain((batch,), batches)
        raise DamagedIndexError

    def _start_for_timestamp(self, timestamp: int) -> Steps[tuple[Start, IndexedTime | None]]:
        """Return a start at, or at most one index interval before, the first batch that reaches `timestamp`.

        Also return the first time index entry at or after `timestamp`; None if all are earlier. The caller still has
        to confirm that entry.
        """
        # Both neighbours of the target are compared with the log and with the order of the entries. If they are right,
        # damage elsewhere cannot have misled the search between them.
        times = self.time_index
        slot = times.ceiling_slot(timestamp)
        below = times.entry(slot - 1) if slot else None
        if below is not None:
            earlier = times[slot - 2][0] if slot > 1 else NO_TIMESTAMP
            if not earlier < below.timestamp < timestamp:
                raise DamagedIndexError
        if slot < len(times):
            reached = times.entry(slot)
            entry = self.offset_index.floor(reached.offset - 1)
        elif timestamp <= times.last_timestamp:
            raise DamagedIndexError
        else:
            reached, entry = None, self.offset_index.last
        if entry is None:
            return Start(0, self.base_offset), reached
        header = self._confirm(entry)
        # The batch of the entry itself, and all before it, are too early.
        after = entry.position + header.size_bytes
        yield from self._confirm_maximum(below, header, after)
        return Start(after, header.next_offset, header.partition_leader_epoch), reached

    def maximum_before(self, offset: int) -> Steps[IndexedTime | None]:
        """Return the last time index entry whose batch ends before `offset`; None if there is none.

        Up to the last offset index entry before `offset`, no batch has a larger timestamp.
        """
        reached = self.time_index.last_before(offset)
        entry = self.offset_index.floor(offset - 1)
        if entry is not None:
            header = self._confirm(entry)
            yield from self._confirm_maximum(reached, header, entry.position + header.size_bytes)
        elif reached is not None:
            self._confirm_time(reached)
        return reached

    def _confirm_maximum(self, reached: IndexedTime | None, indexed: BatchHeader, end: int) -> Steps[None]:
        """Raise DamagedIndexError if the time index lacks entries after `reached` (None: before its first entry).

        `indexed`, whose batch ends at byte `end`, has an entry in the offset index. No timestamp up to it may therefore
        exceed `reached`. In most cases `reached` is that very batch. Otherwise the maximum did not rise, and the
        headers in between must confirm this. Each is read once, because `TimeIndex.confirmed_to` notes how far.
        """
        if reached is not None and reached.offset == indexed.last_offset:
            if reached.timestamp != indexed.max_timestamp:
                raise DamagedIndexError
            return
        times = self.time_index
        known = reached.timestamp if reached is not None else NO_TIMESTAMP
        position = times.confirmed_to.get(reached, 0)
        if reached is not None and not position:
            at, header = self._confirm_time(reached)
            position = at + header.size_bytes
        for number, (at, header) in enumerate(scan_headers(self.log, position, end), 1):
            if header.max_timestamp > known:
                raise DamagedIndexError
            if not number % HEADERS_PER_STEP:
                times.note_confirmed(reached, at + header.size_bytes)
                yield PAUSE
        times.note_confirmed(reached, max(position, end))

    # --- confirming ----------------------------------------------------------------------------------

    def _raise_if_partial_entry(self) -> None:
        if self.offset_index.has_partial_entry or self.time_index.has_partial_entry:
            raise DamagedIndexError

    def _confirm_time(self, entry: IndexedTime) -> tuple[int, BatchHeader]:
        """Return (position, header) of the batch that a time index entry names. DamagedIndexError."""
        found = self.find(entry.offset)
        if found is None or found[1].last_offset != entry.offset or found[1].max_timestamp != entry.timestamp:
            raise DamagedIndexError
        return found

    def _confirm(self, entry: OffsetPosition) -> BatchHeader:
        """Return the header of the batch that an index entry names.

        DamagedIndexError if it is another batch, or none.
        """
        if entry.position <= 0:  # the first batch never has an entry, so a zeroed entry is damage too
            raise DamagedIndexError
        try:
            header = header_at(self.log, entry.position, self.size)
        except CorruptMessageError:
            raise DamagedIndexError from None
        if header.last_offset != entry.offset or header.base_offset < self.base_offset:
            raise DamagedIndexError
        return header

"""A segment's `.log` and what its two indexes say of it, held against one another.

Every answer is borne out by the batches that it leads to: a damaged index costs time, never an answer. Nothing is
changed here; where the indexes are wrong, `DamagedIndexError` tells the segment to make them anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from storage.files import File
from storage.segments.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex, OffsetPosition
from storage.segments.scan import header_at, scan_checked, scan_headers
from storage.segments.time_index import IndexedTime, TimeIndex
from storage.segments.timestamp_search import Searcher, Turn
from tidelog.errors import CorruptMessageError
from tidelog.model import NO_TIMESTAMP
from tidelog.records import BatchHeader

_LOOKED_AT_ONCE = 20 * 1024
#: Headers that are read in some ms; after them others have a turn.
_WALKED_AT_ONCE = 1_000


class DamagedIndexError(Exception):
    """An index contradicts the log; the log is right. Never leaves the segment."""


class Extent(NamedTuple):
    """How far the batches go: as the fields of `Segment`; `last_batch` is the last that was seen."""

    next_offset: int
    largest: IndexedTime
    last_batch: BatchHeader | None


class Start(NamedTuple):
    """Where reading begins: at byte `position`, with a batch at or behind `expected_offset`.

    epoch_before   of the batch before it; −1: of none that is known
    """

    position: int
    expected_offset: int
    epoch_before: int = -1


class IndexedLog(NamedTuple):
    """The first `size` bytes of the `.log`, and its indexes.

    All methods: DamagedIndexError; CorruptMessageError where the log itself does not consist of whole batches.
    """

    base_offset: int
    log: File
    size: int
    offset_index: OffsetIndex
    time_index: TimeIndex

    # --- opening -------------------------------------------------------------------------------------

    def summarize(self, index_interval_bytes: int) -> Extent:
        """Of all batches, seen from the last entries on; those must be right, and nothing missing behind them."""
        self._raise_if_ragged()
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
            # What the entries say together with what they leave out: the time index has seen every batch up to the last
            # that the offset index names, and no more bytes follow that one than may go without an entry.
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
        """(position, base offset) of a batch below it, up to where the indexes are right; None where there is none."""
        self._raise_if_ragged()
        entry = self.offset_index.floor(recovery_point - 1)
        if entry is None:
            return None
        header = self._confirm(entry)
        self.largest_below(entry.position)
        return entry.position, header.base_offset

    def largest_below(self, position: int) -> IndexedTime:
        """The running maximum before the batch at `position`."""
        header = header_at(self.log, position, self.size)
        reached = self.time_index.last_before(header.base_offset)
        known = reached.timestamp if reached is not None else NO_TIMESTAMP
        # The time index was brought up to date at each entry of the offset index: here the last of those before.
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
        """CorruptMessageError where a batch of this segment cannot begin so, or end so far away."""
        if header.base_offset < next_offset or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise CorruptMessageError(f"{self.log.path}: offset {header.base_offset} at {position} cannot be")

    # --- finding -------------------------------------------------------------------------------------

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """(position, header) of the first batch that ends at or after `offset`; None past the end."""
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
        for position, header, _ in self.checked_from(Start(start, expected_offset)):
            if header.last_offset >= offset:
                return position, header
        return None

    def checked_from(self, start: Start) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Every batch from there on, as `scan_checked`."""
        return scan_checked(
            self.log,
            start.position,
            self.size,
            start.expected_offset,
            epoch_before=start.epoch_before,
            at_once=_LOOKED_AT_ONCE,
        )

    def position_before(self, offset: int) -> Start:
        """At most one index interval before the first batch that ends at or after `offset`, or at it."""
        entry = self.offset_index.floor(offset)
        if entry is None or entry.offset > offset:
            return Start(0, self.base_offset)
        return Start(entry.position, self._confirm(entry).base_offset)

    def from_timestamp(
        self, timestamp: int, start_offset: int, search: Searcher
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """All batches from one on before which none reaches `timestamp`, or some that end before `start_offset`.

        Checked, those that are passed over too: a damaged header may hide what is looked for. DamagedIndexError comes
        before the first batch, and so does what `search` raises.
        """
        start, reached = self._start_for_timestamp(timestamp, search)
        if start_offset > self.base_offset and (least := self.position_before(start_offset)).position > start.position:
            start, reached = least, None  # it does not depend on the time index
        for batch in self.checked_from(start):
            header = batch[1]
            if reached is not None:
                if header.max_timestamp < timestamp and header.last_offset < reached.offset:
                    continue
                if (header.max_timestamp, header.last_offset) != reached:
                    self._confirm_time(reached)
                reached = None
            yield batch
        if reached is not None:
            raise DamagedIndexError

    def _start_for_timestamp(self, timestamp: int, search: Searcher) -> tuple[Start, IndexedTime | None]:
        """At or before the first batch that reaches `timestamp`, at most one index interval away from it.

        And the entry that led there, which is still to be confirmed.
        """
        # Both neighbours of the target are held against the log, and against the order of the file: where they are
        # right, no damage elsewhere can have misled the search between them.
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
        # The batch of the entry itself is too early, as all before it are.
        after = entry.position + header.size_bytes
        self._confirm_standstill(below, header, after, search)
        return Start(after, header.next_offset, header.partition_leader_epoch), reached

    def maximum_before(self, offset: int, search: Searcher) -> IndexedTime | None:
        """The last time index entry whose batch ends before `offset`.

        Up to the last offset index entry before `offset` no batch rises above it.
        """
        reached = self.time_index.last_before(offset)
        entry = self.offset_index.floor(offset - 1)
        if entry is not None:
            header = self._confirm(entry)
            self._confirm_standstill(reached, header, entry.position + header.size_bytes, search)
        elif reached is not None:
            self._confirm_time(reached)
        return reached

    def _confirm_standstill(
        self, reached: IndexedTime | None, indexed: BatchHeader, end: int, search: Searcher
    ) -> None:
        """DamagedIndexError where the time index lacks entries behind `reached` (None: before its first).

        `indexed`, whose batch ends at byte `end`, has an entry in the offset index, so `reached` is in force there:
        nothing up to it rises higher. Most often it is that very batch. Else the maximum stood still, and the headers
        in between bear it out: once, since it is remembered, and with turns for others where there are many.
        """
        if reached is not None and reached.offset == indexed.last_offset:
            if reached.timestamp != indexed.max_timestamp:
                raise DamagedIndexError
            return
        times = self.time_index
        known = reached.timestamp if reached is not None else NO_TIMESTAMP
        position = times.still_until.get(reached, 0)
        if reached is not None and not position:
            at, header = self._confirm_time(reached)
            position = at + header.size_bytes
        for number, (at, header) in enumerate(scan_headers(self.log, position, end), 1):
            if header.max_timestamp > known:
                raise DamagedIndexError
            if not number % _WALKED_AT_ONCE:
                times.note_standstill(reached, at + header.size_bytes)
                search(Turn((times, at)))
        times.note_standstill(reached, max(position, end))

    # --- confirming ----------------------------------------------------------------------------------

    def _raise_if_ragged(self) -> None:
        if self.offset_index.ragged or self.time_index.ragged:
            raise DamagedIndexError

    def _confirm_time(self, entry: IndexedTime) -> tuple[int, BatchHeader]:
        """(position, header) of the batch that a time index entry names."""
        found = self.find(entry.offset)
        if found is None or found[1].last_offset != entry.offset or found[1].max_timestamp != entry.timestamp:
            raise DamagedIndexError
        return found

    def _confirm(self, entry: OffsetPosition) -> BatchHeader:
        """The header of the batch that an index entry names; DamagedIndexError if it is another batch, or none."""
        if entry.position <= 0:  # the first batch never has one, so that zeros are none either
            raise DamagedIndexError
        try:
            header = header_at(self.log, entry.position, self.size)
        except CorruptMessageError:
            raise DamagedIndexError from None
        if header.last_offset != entry.offset or header.base_offset < self.base_offset:
            raise DamagedIndexError
        return header

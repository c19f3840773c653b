"""The row of segments that makes up one log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import overload

from storage.files import Files
from storage.segments.segment import Segment
from storage.segments.segment_files import SegmentFiles
from tidelog.errors import StorageError


class Segments(Sequence[Segment]):
    """Never empty, by offset; all but the last are sealed and change no more.

    The row is a tuple that is replaced whole, so a thread that took it (`row`) may go through it beside the owner.
    Offsets may be missing inside a segment and between two of them, where compaction has been.
    """

    def __init__(self, directory: Path, files: Files, found: Sequence[Segment]) -> None:
        self._directory = directory
        self._files = files
        self._set(tuple(found))

    def _set(self, row: tuple[Segment, ...]) -> None:
        self.row = row
        self.active = row[-1]
        self.base_offsets = tuple(segment.base_offset for segment in row)
        self._maxima: list[int] | None = None

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.row)

    @overload
    def __getitem__(self, slot: int) -> Segment: ...
    @overload
    def __getitem__(self, slot: slice) -> tuple[Segment, ...]: ...
    def __getitem__(self, slot: int | slice) -> Segment | tuple[Segment, ...]:
        return self.row[slot]

    # --- facts ---------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """Of all `.log` files."""
        return sum(segment.size for segment in self.row)

    @property
    def largest_timestamp(self) -> int:
        """Ms; −1 where no record has one."""
        return max(segment.largest.timestamp for segment in self.row)

    # --- finding -------------------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[Segment, int] | None:
        """(segment, position) of the first batch that ends at or after `offset`; None where there is none."""
        for segment in self.row[self.slot_of(offset) :]:
            found = segment.find(offset)
            if found is not None:
                return segment, found[0]
        return None

    def offset_after(self, segment: Segment) -> int:
        """Where the segment after this one begins, or where the log ends."""
        slot = self.row.index(segment) + 1
        return self.base_offsets[slot] if slot < len(self.row) else self.active.next_offset

    def slot_of(self, offset: int) -> int:
        """The slot of the last segment that begins at or before `offset`; 0 where none does."""
        return max(bisect_right(self.base_offsets, offset) - 1, 0)

    def from_timestamp(self, timestamp: int) -> Iterator[Segment]:
        """The first segment that reaches `timestamp` (ms) and all after it.

        Found by bisection: what a segment and all before it reach cannot fall from one to the next.
        """
        if self._maxima is None:
            self._maxima = list(accumulate((segment.largest.timestamp for segment in self.row[:-1]), max))
        return iter(self.row[bisect_left(self._maxima, timestamp) :])

    # --- changing ------------------------------------------------------------------------------------

    def open_next(self, base_offset: int, index_interval_bytes: int) -> None:
        """Seals the active segment; a new one begins at `base_offset`. After a StorageError the same one is active."""
        self.active.seal()
        try:
            segment = Segment(self._directory, base_offset, self._files, index_interval_bytes)
        except StorageError:
            # The active segment may grow past its name.
            SegmentFiles(self._directory, base_offset, self._files).delete()
            raise
        self._set((*self.row, segment))

    def retire_oldest(self, count: int) -> tuple[Segment, ...]:
        """Takes the oldest out of the log (never all) and marks their files as deleted.

        After an error those that come after the one that it met are still in the log.
        """
        retired, taken = self.row[:count], 0
        try:
            for segment in retired:
                taken += 1
                segment.retire()
        finally:
            self._set(self.row[taken:])
        return retired

    def replace(self, old: Sequence[Segment], cleaned: Segment) -> None:
        """`cleaned` stands where `old` (`stand_together`) stood."""
        start = self.row.index(old[0])
        self._set((*self.row[:start], cleaned, *self.row[start + len(old) :]))

    def stand_together(self, segments: Sequence[Segment]) -> bool:
        """Whether these very segments follow one another in the row and are sealed."""
        if not segments or segments[0] not in self.row:
            return False
        start = self.row.index(segments[0])
        return start + len(segments) < len(self.row) and self.row[start : start + len(segments)] == tuple(segments)

    def truncate_to(self, offset: int) -> None:
        """Removes the batch that holds `offset` and all after it; the segment before the cut is active then.

        CorruptMessageError where a damaged batch hides the place; nothing is removed then.
        """
        self.row[self.slot_of(offset)].find(offset)
        dropped = False
        while len(self.row) > 1 and self.active.base_offset > offset:
            last = self.active
            self._set(self.row[:-1])
            last.delete()
            dropped = True
        if dropped:
            # Sealed segments change no more: who holds this one must not take it for the one that does.
            self.active.close()
            self._set((*self.row[:-1], self.active.reopened()))
        self.active.truncate_to(offset)
        self._maxima = None

    def begin_anew(self, offset: int, index_interval_bytes: int) -> None:
        """Removes everything; the log begins and ends at `offset`. Newest first: what a crash leaves is a prefix."""
        for segment in reversed(self.row):
            segment.delete()
        self._set((Segment(self._directory, offset, self._files, index_interval_bytes),))

    def close(self) -> None:
        for segment in self.row:
            segment.close()

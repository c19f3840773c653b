"""The segments of one log, in order."""

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
    """The segments by offset, never empty. All but the last one are sealed and do not change any more.

    `row` is the tuple of all segments. Every change replaces it as a whole, so that another thread may iterate over it.
    `active` is its last segment. After compaction, offsets may be missing inside a segment and between two of them.
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
        """Return the size in bytes of all batches."""
        return sum(segment.size for segment in self.row)

    @property
    def largest_timestamp(self) -> int:
        """Return the largest timestamp in ms; −1 if no record has one."""
        return max(segment.largest.timestamp for segment in self.row)

    # --- finding -------------------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[Segment, int] | None:
        """Return (segment, position) of the first batch that ends at or after `offset`; None if there is none."""
        for segment in self.row[self.slot_of(offset) :]:
            found = segment.find(offset)
            if found is not None:
                return segment, found[0]
        return None

    def offset_after(self, segment: Segment) -> int:
        """Return the base offset of the next segment, or the log end."""
        slot = self.row.index(segment) + 1
        return self.base_offsets[slot] if slot < len(self.row) else self.active.next_offset

    def slot_of(self, offset: int) -> int:
        """Return the slot of the last segment with a base offset ≤ `offset`; 0 if there is none."""
        return max(bisect_right(self.base_offsets, offset) - 1, 0)

    def from_timestamp(self, timestamp: int) -> Iterator[Segment]:
        """Return the first segment that reaches `timestamp` (ms) and all after it, at least the active segment.

        A bisection finds the first one, because the running maximum over the segments never falls.
        """
        if self._maxima is None:
            self._maxima = list(accumulate((segment.largest.timestamp for segment in self.row[:-1]), max))
        return iter(self.row[bisect_left(self._maxima, timestamp) :])

    # --- changing ------------------------------------------------------------------------------------

    def open_next(self, base_offset: int, index_interval_bytes: int) -> None:
        """Seal the active segment and create a new active one at `base_offset`.

        After a StorageError the old one stays active.
        """
        self.active.seal()
        try:
            segment = Segment(self._directory, base_offset, self._files, index_interval_bytes)
        except StorageError:
            # Remove its files, because the active segment may grow past this base offset.
            SegmentFiles(self._directory, base_offset, self._files).delete()
            raise
        self._set((*self.row, segment))

    def retire_oldest(self, count: int) -> tuple[Segment, ...]:
        """Remove and return the oldest `count` segments (never all), and rename their files to `.deleted`.

        After an error, only the segments after the one that failed are still in the log.
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
        """Put `cleaned` in the place of the segments `old`, which `are_neighbours`."""
        start = self.row.index(old[0])
        self._set((*self.row[:start], cleaned, *self.row[start + len(old) :]))

    def are_neighbours(self, segments: Sequence[Segment]) -> bool:
        """Return whether these segments, in this order, follow each other in this log and are sealed.

        False for no segments.
        """
        if not segments or segments[0] not in self.row:
            return False
        start = self.row.index(segments[0])
        return start + len(segments) < len(self.row) and self.row[start : start + len(segments)] == tuple(segments)

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that holds `offset` and everything after it. The segment of the truncation becomes active.

        CorruptMessageError if a damaged batch hides the position; nothing is removed then.
        """
        self.row[self.slot_of(offset)].find(offset)
        dropped = False
        while len(self.row) > 1 and self.active.base_offset > offset:
            last = self.active
            self._set(self.row[:-1])
            last.delete()
            dropped = True
        if dropped:
            # Sealed segments must not change. A reader of this one must not confuse it with the active segment, so the
            # active one is a new object.
            self.active.close()
            self._set((*self.row[:-1], self.active.reopened()))
        self.active.truncate_to(offset)
        self._maxima = None

    def reset(self, offset: int, index_interval_bytes: int) -> None:
        """Remove everything; the log begins and ends at `offset`.

        The newest go first, so that a crash leaves a prefix.
        """
        for segment in reversed(self.row):
            segment.delete()
        self._set((Segment(self._directory, offset, self._files, index_interval_bytes),))

    def continue_in(self, directory: Path) -> None:
        """Use the files in this directory from now on, because the directory of the log gets this name."""
        self._directory = directory
        for segment in self.row:
            segment.continue_in(directory)

    def close(self) -> None:
        for segment in self.row:
            segment.close()

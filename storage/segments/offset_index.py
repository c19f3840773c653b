"""`.index`: maps offsets of a segment to positions in its `.log`.

    byte  field            type
    0     relative offset  int32   last offset of the batch that starts at the position, minus the base offset
    4     position         int32   of that batch's first byte in the `.log`

Entries are sparse and increase in both fields. A batch gets an entry if more than `index.interval.bytes` lie between
the batch of the last entry (or the start of the segment) and itself. The first batch therefore never has one. A look-up
returns the greatest entry that is not above the offset, and the caller reads batches from there. The batch at the
position confirms its entry: a reader compares the batch's last offset with the entry. A crash may leave the file short,
long or zeroed. Entries that the log does not confirm are discarded, and the index is rebuilt from the log.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from storage.segments.sparse_index import SparseIndex

LAYOUT = Struct(">ii")
#: The greatest distance of an offset from the base offset of its segment.
MAX_RELATIVE_OFFSET = 2**31 - 1
_OFFSET = 0  # the field


class OffsetPosition(NamedTuple):
    """The batch at byte `position` ends with `offset`."""

    offset: int
    position: int


class OffsetIndex(SparseIndex):
    """The sparse map of one segment from offsets to positions."""

    __slots__ = ("last_position",)

    ENTRY = LAYOUT

    #: Position of the last entry, 0 if there is none. The distance to the next entry is counted from it.
    last_position: int

    def entry(self, slot: int) -> OffsetPosition:
        relative, position = self[slot]
        return OffsetPosition(self._base_offset + relative, position)

    @property
    def last(self) -> OffsetPosition | None:
        return self.entry(len(self) - 1) if len(self) else None

    def floor(self, offset: int) -> OffsetPosition | None:
        """Return the last entry with an offset ≤ `offset`; None if there is none: look from the segment's start."""
        slot = self.rank(_OFFSET, offset - self._base_offset + 1)
        return self.entry(slot - 1) if slot else None

    def append(self, offset: int, position: int) -> None:
        self.put(offset - self._base_offset, position)
        self.last_position = position

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of batches that end at or after `offset`."""
        self.keep(self.rank(_OFFSET, offset - self._base_offset))

    def _refresh(self) -> None:
        last = self.last
        self.last_position = last.position if last else 0

"""`.index`: where in a segment an offset is found.

    byte  field            type
    0     relative offset  int32   last offset of the batch that starts at the position, minus the base offset
    4     position         int32   of that batch's first byte in the `.log`

Entries are sparse and increase in both fields. A batch gets one when more than `index.interval.bytes` lie between
the batch of the last entry (or the start of the segment) and itself, so the first batch never has one. A look-up
returns the greatest entry that is not above the offset and the caller reads batches on from there. An entry is a
hint that the batch at its position can prove: a reader compares that batch's last offset with the entry. A crash may
leave the file short, long or zeroed; what is not confirmed by the log is thrown away and built again from it.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from storage.segments.sparse_index import SparseIndex

LAYOUT = Struct(">ii")
#: The farthest that an offset may be from the base offset of its segment.
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

    #: Position of the last entry, 0 without one: what the distance to the next entry is counted from.
    last_position: int

    def entry(self, slot: int) -> OffsetPosition:
        relative, position = self[slot]
        return OffsetPosition(self._base_offset + relative, position)

    @property
    def last(self) -> OffsetPosition | None:
        return self.entry(len(self) - 1) if len(self) else None

    def floor(self, offset: int) -> OffsetPosition | None:
        """The last entry with an offset ≤ `offset`; None means: from the start of the segment."""
        slot = self.rank(_OFFSET, offset - self._base_offset + 1)
        return self.entry(slot - 1) if slot else None

    def append(self, offset: int, position: int) -> None:
        self.put(offset - self._base_offset, position)
        self.last_position = position

    def truncate_to(self, offset: int) -> None:
        """Drops the entries of batches that end at or after `offset`."""
        self.keep(self.rank(_OFFSET, offset - self._base_offset))

    def _refresh(self) -> None:
        last = self.last
        self.last_position = last.position if last else 0

"""`.timeindex`: from when on a segment holds timestamps that are at least as large as one looked for.

    byte  field            type
    0     timestamp        int64   ms; the largest timestamp in the segment up to the moment of the entry
    8     relative offset  int32   last offset of the first batch that reached it, minus the base offset

An entry is tried together with every entry of the offset index and once more when the segment is closed; it is
written only if it raises the maximum, so timestamps strictly increase although those of the records need not.
Two things follow, and the look-up by time stands on them. Before the batch of an entry no record reaches the entry's
timestamp. And up to the batch of an offset index entry no record exceeds the time index entry that is in force there:
so the first record at or after a target lies between the last offset index entry *before* the batch of the first
time index entry ≥ target, and that batch. A crash may leave the file short, long or zeroed; it is then built again.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from storage.segments.sparse_index import SparseIndex
from tidelog.model import NO_TIMESTAMP

LAYOUT = Struct(">qi")
_TIMESTAMP, _OFFSET = 0, 1  # the fields
_STRETCHES_REMEMBERED = 1_024


class IndexedTime(NamedTuple):
    """`offset` ends the first batch of the segment whose largest timestamp (ms) is `timestamp`."""

    timestamp: int
    offset: int


class TimeIndex(SparseIndex):
    """The running maximum of one segment's timestamps."""

    __slots__ = ("last_timestamp", "still_until")

    ENTRY = LAYOUT

    #: Timestamp of the last entry, −1 without one: an entry is written only above it.
    last_timestamp: int
    #: By entry (None: before all): up to which byte of the `.log`, behind its batch, nothing was seen to rise above it.
    still_until: dict[IndexedTime | None, int]

    def entry(self, slot: int) -> IndexedTime:
        timestamp, relative = self[slot]
        return IndexedTime(timestamp, self._base_offset + relative)

    @property
    def last(self) -> IndexedTime | None:
        return self.entry(len(self) - 1) if len(self) else None

    def ceiling_slot(self, timestamp: int) -> int:
        """The slot of the first entry with a timestamp ≥ `timestamp`; `len(self)` if all are smaller."""
        return self.rank(_TIMESTAMP, timestamp)

    def last_before(self, offset: int) -> IndexedTime | None:
        """The last entry whose batch ends before `offset`."""
        slot = self.rank(_OFFSET, offset - self._base_offset)
        return self.entry(slot - 1) if slot else None

    def note_standstill(self, entry: IndexedTime | None, position: int) -> None:
        """As `still_until`, of which not all is kept."""
        if len(self.still_until) >= _STRETCHES_REMEMBERED:
            self.still_until.clear()
        self.still_until[entry] = position

    def maybe_append(self, timestamp: int, offset: int) -> bool:
        """Writes the entry if it raises the maximum."""
        if timestamp <= self.last_timestamp:
            return False
        self.put(timestamp, offset - self._base_offset)
        self.last_timestamp = timestamp
        return True

    def truncate_to(self, offset: int) -> None:
        """Drops the entries of batches that end at or after `offset`."""
        self.keep(self.rank(_OFFSET, offset - self._base_offset))

    def _refresh(self) -> None:
        last = self.last
        self.last_timestamp = last.timestamp if last else NO_TIMESTAMP
        self.still_until = {}

"""`.timeindex`: maps timestamps to the offsets at which a segment first reaches them.

    byte  field            type
    0     timestamp        int64   ms; the largest timestamp in the segment up to the moment of the entry
    8     relative offset  int32   last offset of the first batch that reached it, minus the base offset

An entry is offered together with every entry of the offset index and once more when the segment is sealed. It is
written only if it raises the maximum, so timestamps strictly increase although those of the records need not.

The look-up by time relies on two facts. First, before the batch of an entry, no record reaches the entry's timestamp.
Second, up to the batch of an offset index entry, no record exceeds the time index entry that is current there. The
first record at or after a target therefore lies between two batches: that of the last offset index entry before the
first time index entry ≥ target, and the batch of that time index entry. A crash may leave the file short, long or
zeroed; it is then rebuilt.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from storage.segments.sparse_index import SparseIndex
from tidelog.model import NO_TIMESTAMP

LAYOUT = Struct(">qi")
_TIMESTAMP, _OFFSET = 0, 1  # the fields
#: The most entries of `confirmed_to`.
_MAX_CONFIRMED = 1_024


class IndexedTime(NamedTuple):
    """`offset` is the last offset of the segment's first batch whose largest timestamp (ms) is `timestamp`."""

    timestamp: int
    offset: int


class TimeIndex(SparseIndex):
    """The running maximum of one segment's timestamps.

    last_timestamp   the timestamp of the last entry, −1 if there is none. Only larger timestamps are written
    confirmed_to     for an entry (None: before the first): the byte of the `.log` up to which the headers of the
                     batches after the entry's batch have shown that none of them exceeds the entry. Without this
                     cache, each look-up would read a long stretch of equal or smaller timestamps again
    """

    __slots__ = ("confirmed_to", "last_timestamp")

    ENTRY = LAYOUT

    last_timestamp: int
    confirmed_to: dict[IndexedTime | None, int]

    def entry(self, slot: int) -> IndexedTime:
        timestamp, relative = self[slot]
        return IndexedTime(timestamp, self._base_offset + relative)

    @property
    def last(self) -> IndexedTime | None:
        return self.entry(len(self) - 1) if len(self) else None

    def ceiling_slot(self, timestamp: int) -> int:
        """Return the slot of the first entry with a timestamp ≥ `timestamp`; `len(self)` if all are smaller."""
        return self.rank(_TIMESTAMP, timestamp)

    def last_before(self, offset: int) -> IndexedTime | None:
        """Return the last entry whose batch ends before `offset`; None if there is none."""
        slot = self.rank(_OFFSET, offset - self._base_offset)
        return self.entry(slot - 1) if slot else None

    def note_confirmed(self, entry: IndexedTime | None, position: int) -> None:
        """Set `confirmed_to[entry]` to `position`; `confirmed_to` is cleared first if it is full."""
        if len(self.confirmed_to) >= _MAX_CONFIRMED:
            self.confirmed_to.clear()
        self.confirmed_to[entry] = position

    def maybe_append(self, timestamp: int, offset: int) -> bool:
        """Append an entry if `timestamp` is above the last entry's. Return whether one was appended."""
        if timestamp <= self.last_timestamp:
            return False
        self.put(timestamp, offset - self._base_offset)
        self.last_timestamp = timestamp
        return True

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of batches that end at or after `offset`."""
        self.keep(self.rank(_OFFSET, offset - self._base_offset))

    def _refresh(self) -> None:
        last = self.last
        self.last_timestamp = last.timestamp if last else NO_TIMESTAMP
        self.confirmed_to = {}

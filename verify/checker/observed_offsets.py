"""Record which record is at which offset of a partition, from all observations: one table for I2, I3, I4 and I6."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.history.columns import DAMAGED, SEQUENCE_BITS, Column, as_array
from verify.checker.by_record import ABSENT, ByRecord

#: The value of an offset without an observation.
UNSEEN: Final = -2


class Contradiction(NamedTuple):
    """An offset at which two records were observed.

    first   the id of the record that was observed first; −1 if it was damaged
    other   the id of the other record; −1 if it was damaged
    """

    offset: int
    first: int
    other: int


class Duplicate(NamedTuple):
    """A record that was observed at two offsets.

    first   the offset at which it was observed first
    other   the other offset
    """

    record_id: int
    first: int
    other: int


@dataclass(slots=True)
class ObservedOffsets:
    """The observed records of one partition. A repeated observation of consecutive offsets costs one comparison of
    columns.

    The lists only grow, so that an invariant can continue where it stopped.

    contradictions   observations of another record than the first one at the offset
    duplicates       observations of a record at another offset than its first one
    fresh            (ids, offsets) of observations that differ from the first one at the offset, or are the first one
    compared         the number of observations at an offset that was observed before
    records          the number of observed undamaged records, by producer
    """

    contradictions: list[Contradiction] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    fresh: list[tuple[Column, Column]] = field(default_factory=list)
    compared: int = 0
    records: Counter[int] = field(default_factory=Counter)
    _origin: int = -1
    _ids: array[int] = field(default_factory=lambda: array("q"))
    _place: ByRecord = field(default_factory=ByRecord)

    def offset_of(self, record_id: int) -> int | None:
        """Return the offset at which the record was observed first, or None."""
        return self._place.get(record_id)

    def id_at(self, offset: int) -> int:
        """Return the id of the record that was observed first at the offset; −1: damaged, `UNSEEN`: no observation."""
        place = offset - self._origin
        return self._ids[place] if self._origin >= 0 and 0 <= place < len(self._ids) else UNSEEN

    def __contains__(self, record_id: int) -> bool:
        return record_id in self._place

    def see(self, offsets: Column, ids: Column) -> None:
        """Add the observation that these records are at these offsets. Damaged records (id −1) are never duplicates."""
        if not ids:
            return
        self._reach(min(offsets[0], offsets[-1]))
        if isinstance(offsets, range):
            start = offsets.start - self._origin
            observed = as_array(ids)
            there = self._ids[start : start + len(observed)]
            if there == observed:
                self.compared += len(observed)
                return
            if there.count(UNSEEN) == len(there) and self._fill(start, observed, ids, offsets):
                return
        self._see_each(offsets, ids)

    def _reach(self, offset: int) -> None:
        """Extend the table down to the offset, by at least the table's size or to 0, so that going backwards does not
        take quadratic time.

        No effect if the table begins at or below the offset.
        """
        if self._origin < 0:
            self._origin = offset
        if offset < self._origin:
            origin = max(0, min(offset, self._origin - len(self._ids)))
            self._ids = array("q", [UNSEEN]) * (self._origin - origin) + self._ids
            self._origin = origin

    def _fill(self, start: int, observed: array[int], ids: Column, offsets: range) -> bool:
        """Add observations at offsets that all are unseen. Return False without effect if a record was observed before,
        occurs twice, or is damaged.
        """
        if self._place.has_any(ids) or not _distinct(ids):
            return False
        if start > len(self._ids):
            self._ids.extend(array("q", [UNSEEN]) * (start - len(self._ids)))
        self._ids[start : start + len(observed)] = observed
        self._place.put(ids, offsets)
        self._count(ids)
        self.fresh.append((ids, offsets))
        return True

    def _see_each(self, offsets: Column, ids: Column) -> None:
        new_ids, new_offsets = array("q"), array("q")
        table, place_of, origin = self._ids, self._place, self._origin
        first_observed = 0
        for offset, record_id in zip(offsets, ids, strict=True):
            place = offset - origin
            if place < 0:
                self._reach(offset)
                table, origin = self._ids, self._origin
                place = offset - origin
            if place >= len(table):
                table.extend(array("q", [UNSEEN]) * (place + 1 - len(table)))
            known = table[place]
            if known == record_id:
                continue
            if known != UNSEEN:
                self.contradictions.append(Contradiction(offset, known, record_id))
            else:
                table[place] = record_id
                first_observed += 1
            if record_id >= 0:
                first = place_of[record_id]
                if first == ABSENT:
                    place_of.put((record_id,), (offset,))
                    self.records[record_id >> SEQUENCE_BITS] += 1
                elif first != offset:
                    self.duplicates.append(Duplicate(record_id, first, offset))
            new_ids.append(record_id)
            new_offsets.append(offset)
        self.compared += len(ids) - first_observed
        if new_ids:
            self.fresh.append((new_ids, new_offsets))

    def _count(self, ids: Column) -> None:
        producer = ids[0] >> SEQUENCE_BITS
        if isinstance(ids, range) and ids[-1] >> SEQUENCE_BITS == producer:
            self.records[producer] += len(ids)
        else:
            self.records.update(map(SEQUENCE_BITS.__rrshift__, ids))  # each id >> SEQUENCE_BITS


def _distinct(ids: Column) -> bool:
    """Return whether none of these records is damaged or occurs twice."""
    return DAMAGED not in ids and (isinstance(ids, range) or len(set(ids)) == len(ids))

"""Which record stands at which offset of a partition, by all who ever told of it: one table for I2, I3, I4 and I6."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.history.columns import DAMAGED, SEQUENCE_BITS, Column, as_array
from verify.checker.by_record import ABSENT, ByRecord

#: Nobody has told of this offset.
UNSEEN: Final = -2


class Contradiction(NamedTuple):
    """An offset for which two records were told."""

    offset: int
    first: int
    other: int


class Duplicate(NamedTuple):
    """A record that was told of at two offsets."""

    record_id: int
    first: int
    other: int


@dataclass(slots=True)
class Sightings:
    """Of one partition. What has been said a thousand times over costs one comparison of columns each.

    All three only grow, so that who looks again goes on where it was.

    fresh     (ids, offsets) of what was not known before
    compared  how often somebody told of an offset of which another had told
    records   how many records were seen, by their producers
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
        """Where the record was seen first."""
        return self._place.get(record_id)

    def id_at(self, offset: int) -> int:
        """The record that was seen there first, or `UNSEEN`."""
        place = offset - self._origin
        return self._ids[place] if self._origin >= 0 and 0 <= place < len(self._ids) else UNSEEN

    def __contains__(self, record_id: int) -> bool:
        return record_id in self._place

    def see(self, offsets: Column, ids: Column) -> None:
        """Of these offsets somebody told that these records stand there."""
        if not ids:
            return
        self._reach(min(offsets[0], offsets[-1]))
        if isinstance(offsets, range):
            start = offsets.start - self._origin
            told = as_array(ids)
            there = self._ids[start : start + len(told)]
            if there == told:
                self.compared += len(told)
                return
            if there.count(UNSEEN) == len(there) and self._fill(start, told, ids, offsets):
                return
        self._see_each(offsets, ids)

    def _reach(self, offset: int) -> None:
        """Makes room in front: twice as much as there is, so that going backwards costs no square."""
        if self._origin < 0:
            self._origin = offset
        if offset < self._origin:
            origin = max(0, min(offset, self._origin - len(self._ids)))
            self._ids = array("q", [UNSEEN]) * (self._origin - origin) + self._ids
            self._origin = origin

    def _fill(self, start: int, told: array[int], ids: Column, offsets: range) -> bool:
        """Takes what is all new, at offsets that are too; False, and nothing done, where a record is not new."""
        if self._place.has_any(ids) or not _distinct(ids):
            return False
        if start > len(self._ids):
            self._ids.extend(array("q", [UNSEEN]) * (start - len(self._ids)))
        self._ids[start : start + len(told)] = told
        self._place.put(ids, offsets)
        self._count(ids)
        self.fresh.append((ids, offsets))
        return True

    def _see_each(self, offsets: Column, ids: Column) -> None:
        new_ids, new_offsets = array("q"), array("q")
        table, place_of, origin = self._ids, self._place, self._origin
        first_told = 0
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
                first_told += 1
            if record_id >= 0:
                first = place_of[record_id]
                if first == ABSENT:
                    place_of.put((record_id,), (offset,))
                    self.records[record_id >> SEQUENCE_BITS] += 1
                elif first != offset:
                    self.duplicates.append(Duplicate(record_id, first, offset))
            new_ids.append(record_id)
            new_offsets.append(offset)
        self.compared += len(ids) - first_told
        if new_ids:
            self.fresh.append((new_ids, new_offsets))

    def _count(self, ids: Column) -> None:
        producer = ids[0] >> SEQUENCE_BITS
        if isinstance(ids, range) and ids[-1] >> SEQUENCE_BITS == producer:
            self.records[producer] += len(ids)
        else:
            self.records.update(map(SEQUENCE_BITS.__rrshift__, ids))  # each id >> SEQUENCE_BITS


def _distinct(ids: Column) -> bool:
    """Whether these are records, each of them once."""
    return DAMAGED not in ids and (isinstance(ids, range) or len(set(ids)) == len(ids))

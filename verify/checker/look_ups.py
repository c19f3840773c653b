"""I18: look-ups by time, judged after the fault: was each answer one that the log could give while it was asked for?

The promise is that of `Consumer.offsets_for_times`: the earliest offset whose timestamp is at or after the target. Who
looks on from outside knows of every moment only what must be there and what may be gone by then:

- A record is there from its acknowledgement on; with it, since offsets are a total order and the high watermark only
  rises, is all that stands before it. And where an answer names an offset, all that stands before that was there too.
- A trim takes what stands before an offset: perhaps from its request on, certainly from its answer on.
- Compaction takes a record at any time after a later one of its key was sent; on each replica at another time, so that
  a record may be back after an election. No answer may be held against it then, in neither direction.

All times are of one clock, in any unit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import NamedTuple

from verify.checker.timeline import RunningMax


class StoredRecord(NamedTuple):
    """A record that the final log has, or had until compaction or a trim took it.

    timestamp         as it was stored
    sent_at           nobody can have been told of it before
    acknowledged_at   `inf` where it never was
    superseded_at     when a later record of its key was sent: from then on compaction may take it (`inf`: never)
    leader_epoch      of its batch, None where that is not known
    """

    offset: int
    timestamp: int
    sent_at: float
    acknowledged_at: float
    superseded_at: float = inf
    leader_epoch: int | None = None


class Trim(NamedTuple):
    """What stands before `offset` was asked to go; `answered_at` is `inf` where nobody said that it has gone."""

    offset: int
    asked_at: float
    answered_at: float = inf


class LookUp(NamedTuple):
    """A question, and what was told: (offset, timestamp, leader epoch or None), or None for "nothing so late"."""

    target: int
    asked_at: float
    answered_at: float
    found: tuple[int, int, int | None] | None


class Fault(Enum):
    """What is wrong with an answer."""

    NOTHING_FOUND = "nothing was found although a record that qualifies had been acknowledged"
    TOO_LATE = "an earlier record qualifies"
    TOO_OLD = "the record that was named is older than the target"
    NO_RECORD = "there is no such record"
    OTHER_TIMESTAMP = "the record has another timestamp"
    OTHER_EPOCH = "the record is of another leader epoch"
    NOT_SENT_YET = "the record was sent after the answer"
    TRIMMED = "the record had been trimmed before the question"


class Wrong(NamedTuple):
    """An answer that could not be given; `expected` is the record that it denies, where it denies one."""

    look_up: LookUp
    fault: Fault
    expected: StoredRecord | None = None

    def __str__(self) -> str:
        told = f"{self.look_up.target} was answered by {self.look_up.found}: {self.fault.value}"
        return told if self.expected is None else f"{told}: {self.expected}"


@dataclass(slots=True)
class Verdict:
    """`wrong` in order of the targets.

    forced    right answers of which no other could have been right: the others stood beside what may have been gone
    nothing   right answers that nothing is so late
    """

    wrong: list[Wrong] = field(default_factory=list)
    found: int = 0
    forced: int = 0
    nothing: int = 0

    @property
    def faults(self) -> Mapping[Fault, int]:
        return Counter(each.fault for each in self.wrong)


class StoredLog(ABC):
    """The final log of one partition, with what compaction or a trim took of it."""

    @abstractmethod
    def record(self, offset: int) -> StoredRecord | None: ...

    @abstractmethod
    def first_that_lasts(self, target: int, after: float) -> int | None:
        """The least offset at or after the target that cannot be gone at that moment. Targets never rise."""

    @abstractmethod
    def committed_end(self, before: float) -> int:
        """The offset behind the last record that was acknowledged before then."""


def judge(
    records: Iterable[StoredRecord], trims: Iterable[Trim], look_ups: Iterable[LookUp], all_known_from: int = 0
) -> Verdict:
    """Of one partition, in O((records + look-ups) log records).

    `all_known_from`: what was trimmed before that offset is known only where somebody saw it.
    """
    trimmed = _Trims(trims)
    return _judge(_RecordsThatMayGo(records, trimmed), trimmed, look_ups, all_known_from)


def judge_log(log: StoredLog, look_ups: Iterable[LookUp]) -> Verdict:
    """The same where nothing was trimmed."""
    return _judge(log, _Trims(()), look_ups)


def _judge(log: StoredLog, trimmed: _Trims, look_ups: Iterable[LookUp], all_known_from: int = 0) -> Verdict:
    verdict = Verdict()
    for look_up in sorted(look_ups, key=lambda each: each.target, reverse=True):
        first = log.first_that_lasts(look_up.target, after=look_up.answered_at)
        if look_up.found is None:
            if first is not None and first < log.committed_end(look_up.asked_at):
                verdict.wrong.append(Wrong(look_up, Fault.NOTHING_FOUND, log.record(first)))
            else:
                verdict.nothing += 1
            continue
        offset = look_up.found[0]
        record = log.record(offset)
        if record is None and offset < all_known_from:
            continue
        if fault := _fault_of(look_up, record, trimmed):
            verdict.wrong.append(Wrong(look_up, fault, record))
        elif first is not None and first < offset:
            verdict.wrong.append(Wrong(look_up, Fault.TOO_LATE, log.record(first)))
        else:
            verdict.found += 1
            verdict.forced += first == offset
    return verdict


def _fault_of(look_up: LookUp, record: StoredRecord | None, trimmed: _Trims) -> Fault | None:
    """What is wrong with the record that was named, whatever else there is."""
    assert look_up.found is not None
    _, timestamp, leader_epoch = look_up.found
    if record is None:
        return Fault.NO_RECORD
    if record.timestamp != timestamp:
        return Fault.OTHER_TIMESTAMP
    if None not in (leader_epoch, record.leader_epoch) and leader_epoch != record.leader_epoch:
        return Fault.OTHER_EPOCH
    if timestamp < look_up.target:
        return Fault.TOO_OLD
    if record.sent_at > look_up.answered_at:
        return Fault.NOT_SENT_YET
    if trimmed.gone_at(record.offset) <= look_up.asked_at:
        return Fault.TRIMMED
    return None


class _Trims:
    """When which offsets may be gone, and when they are."""

    def __init__(self, trims: Iterable[Trim]) -> None:
        by_offset = sorted(trims)
        self._offsets = [trim.offset for trim in by_offset]
        self._asked_at = _least_from_each([trim.asked_at for trim in by_offset])
        self._answered_at = _least_from_each([trim.answered_at for trim in by_offset])

    def may_go_at(self, offset: int) -> float:
        return self._asked_at[bisect_left(self._offsets, offset + 1)]

    def gone_at(self, offset: int) -> float:
        return self._answered_at[bisect_left(self._offsets, offset + 1)]


def _least_from_each(values: Sequence[float]) -> list[float]:
    """The least value from each place to the end; `inf` behind the last."""
    least = [inf]
    for value in reversed(values):
        least.append(min(value, least[-1]))
    return least[::-1]


class _RecordsThatMayGo(StoredLog):
    """From the latest target to the earliest, with those records at hand that are at or after it."""

    def __init__(self, records: Iterable[StoredRecord], trimmed: _Trims) -> None:
        self._by_offset = {record.offset: record for record in records}
        self._lasting = _FirstThatLasts(
            {offset: min(each.superseded_at, trimmed.may_go_at(offset)) for offset, each in self._by_offset.items()}
        )
        self._acknowledged = RunningMax(
            (each.acknowledged_at, each.offset) for each in self._by_offset.values() if each.acknowledged_at < inf
        )
        self._waiting = sorted(self._by_offset.values(), key=lambda record: record.timestamp)

    def record(self, offset: int) -> StoredRecord | None:
        return self._by_offset.get(offset)

    def first_that_lasts(self, target: int, after: float) -> int | None:
        while self._waiting and self._waiting[-1].timestamp >= target:
            self._lasting.add(self._waiting.pop().offset)
        return self._lasting.first(after=after)

    def committed_end(self, before: float) -> int:
        last = self._acknowledged.before(before)
        return 0 if last is None else last + 1


class _FirstThatLasts:
    """Of the offsets that were added, the first that cannot be gone at a given moment: a Fenwick tree of minima.

    It is made for the offsets that may be added, each with the moment from which on it may be gone.
    """

    def __init__(self, may_go_at: Mapping[int, float]) -> None:
        self._moments = sorted(set(may_go_at.values()), reverse=True)  # those that last longest come first
        ranks = {moment: rank for rank, moment in enumerate(self._moments, 1)}
        self._rank_of = {offset: ranks[moment] for offset, moment in may_go_at.items()}
        self._least = [inf] * (len(self._moments) + 1)

    def add(self, offset: int) -> None:
        rank = self._rank_of[offset]
        while rank < len(self._least):
            self._least[rank] = min(self._least[rank], offset)
            rank += rank & -rank

    def first(self, *, after: float) -> int | None:
        """The least that may be gone only later than `after`."""
        rank, least = bisect_left(self._moments, -after, key=lambda moment: -moment), inf
        while rank:
            least = min(least, self._least[rank])
            rank -= rank & -rank
        return None if least == inf else int(least)

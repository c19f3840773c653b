"""Check look-ups by time after a run (I18): was each answer possible for the log at some time during its request?

The contract is that of `Consumer.offsets_for_times`: the earliest offset whose timestamp is at or after the target. An
observer of a cluster knows for each time only which records must exist and which may be gone:

- A record exists from its acknowledgement on. All earlier records exist too, because offsets are ordered and the high
  watermark only increases. If an answer names an offset, all earlier records existed as well.
- A trim removes the records below an offset, at the earliest at its request, at the latest at its answer.
- Compaction may remove a record at any time after a later one of its key was sent. Replicas remove it at different
  times, so the record may be back after an election. An answer may name such a record or skip it.

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
    """A record of the final log, or one that compaction or a trim removed.

    timestamp         the stored timestamp
    sent_at           the time of the produce call, before which no client can have known the record
    acknowledged_at   `inf` if it was not acknowledged
    superseded_at     when a later record of its key was sent, after which compaction may remove it (`inf`: never)
    leader_epoch      of its batch, or None if unknown
    """

    offset: int
    timestamp: int
    sent_at: float
    acknowledged_at: float
    superseded_at: float = inf
    leader_epoch: int | None = None


class Trim(NamedTuple):
    """A request to remove the records below `offset`; `answered_at` is `inf` without a successful answer."""

    offset: int
    asked_at: float
    answered_at: float = inf


class LookUp(NamedTuple):
    """A look-up and its answer: (offset, timestamp, leader epoch), or None if no record was found.

    A timestamp or an epoch that the client does not know is None.
    """

    target: int
    asked_at: float
    answered_at: float
    found: tuple[int, int | None, int | None] | None


class Fault(Enum):
    """The kinds of wrong answers."""

    NOTHING_FOUND = "no record was found although a qualifying record had been acknowledged"
    TOO_LATE = "an earlier record qualifies"
    TOO_OLD = "the returned record is older than the target"
    NO_RECORD = "there is no such record"
    OTHER_TIMESTAMP = "the record has another timestamp"
    OTHER_EPOCH = "the record is of another leader epoch"
    NOT_SENT_YET = "the returned record was sent after the answer"
    TRIMMED = "the returned record had been trimmed before the request"


class Wrong(NamedTuple):
    """An impossible answer.

    expected   for NOTHING_FOUND and TOO_LATE a record that should have been found; otherwise the log's record at the
               returned offset, or None if there is none
    """

    look_up: LookUp
    fault: Fault
    expected: StoredRecord | None = None

    def __str__(self) -> str:
        text = f"{self.look_up.target} was answered by {self.look_up.found}: {self.fault.value}"
        return text if self.expected is None else f"{text}: {self.expected}"


@dataclass(slots=True)
class Verdict:
    """The result for one partition. `wrong` is in descending order of the targets.

    found     the number of right answers with a record
    forced    those of them whose record is the first one at or after the target that cannot have been gone. A later
              record would have been a wrong answer
    nothing   the number of right answers without a record
    """

    wrong: list[Wrong] = field(default_factory=list)
    found: int = 0
    forced: int = 0
    nothing: int = 0

    @property
    def faults(self) -> Mapping[Fault, int]:
        return Counter(each.fault for each in self.wrong)


class StoredLog(ABC):
    """The final log of one partition, including records that compaction or a trim removed."""

    @abstractmethod
    def record(self, offset: int) -> StoredRecord | None: ...

    @abstractmethod
    def first_that_lasts(self, target: int, after: float) -> int | None:
        """Return the least offset whose timestamp is at or after the target and whose record cannot be gone at time
        `after`.

        None if there is none. Targets of successive calls must not increase.
        """

    @abstractmethod
    def committed_end(self, before: float) -> int:
        """Return the offset after the last record that was acknowledged before that time; 0 if there is none."""


def judge(
    records: Iterable[StoredRecord], trims: Iterable[Trim], look_ups: Iterable[LookUp], all_known_from: int = 0
) -> Verdict:
    """Check the look-ups of one partition in O((records + look-ups) log records), in any order.

    Records below `all_known_from` that were trimmed are known only if an acknowledgement or a read showed them. Answers
    with unknown ones are neither wrong nor counted.
    """
    trimmed = _Trims(trims)
    return _judge(_RecordsThatMayGo(records, trimmed), trimmed, look_ups, all_known_from)


def judge_log(log: StoredLog, look_ups: Iterable[LookUp]) -> Verdict:
    """Check the look-ups of a partition without trims against this log, in any order."""
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
    """Return what is wrong with the returned record itself, or None. An unknown timestamp or epoch is not compared."""
    assert look_up.found is not None
    _, timestamp, leader_epoch = look_up.found
    if record is None:
        return Fault.NO_RECORD
    if timestamp is not None and record.timestamp != timestamp:
        return Fault.OTHER_TIMESTAMP
    if None not in (leader_epoch, record.leader_epoch) and leader_epoch != record.leader_epoch:
        return Fault.OTHER_EPOCH
    if record.timestamp < look_up.target:
        return Fault.TOO_OLD
    if record.sent_at > look_up.answered_at:
        return Fault.NOT_SENT_YET
    if trimmed.gone_at(record.offset) <= look_up.asked_at:
        return Fault.TRIMMED
    return None


class _Trims:
    """For each offset, the time from which a trim may have removed the record, and the time from which a trim must have
    removed it.
    """

    def __init__(self, trims: Iterable[Trim]) -> None:
        by_offset = sorted(trims)
        self._offsets = [trim.offset for trim in by_offset]
        self._asked_at = _least_from_each([trim.asked_at for trim in by_offset])
        self._answered_at = _least_from_each([trim.answered_at for trim in by_offset])

    def may_go_at(self, offset: int) -> float:
        """Return the earliest request of a trim that removes this offset; `inf` without one."""
        return self._asked_at[bisect_left(self._offsets, offset + 1)]

    def gone_at(self, offset: int) -> float:
        """Return the earliest successful answer to a trim that removes this offset; `inf` without one."""
        return self._answered_at[bisect_left(self._offsets, offset + 1)]


def _least_from_each(values: Sequence[float]) -> list[float]:
    """Return for each index the least value from there to the end, and `inf` after the last."""
    least = [inf]
    for value in reversed(values):
        least.append(min(value, least[-1]))
    return least[::-1]


class _RecordsThatMayGo(StoredLog):
    """A log whose records may be gone. Queries go from the latest target to the earliest, and the index holds the
    records at or after the target.
    """

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
    """An index that returns the first added offset that cannot be gone at a given time: a Fenwick tree of minima.

    The index is created for the offsets that may be added, each with the time from which it may be gone.
    """

    def __init__(self, may_go_at: Mapping[int, float]) -> None:
        self._moments = sorted(set(may_go_at.values()), reverse=True)  # the ones that last longest come first
        ranks = {moment: rank for rank, moment in enumerate(self._moments, 1)}
        self._rank_of = {offset: ranks[moment] for offset, moment in may_go_at.items()}
        self._least = [inf] * (len(self._moments) + 1)

    def add(self, offset: int) -> None:
        rank = self._rank_of[offset]
        while rank < len(self._least):
            self._least[rank] = min(self._least[rank], offset)
            rank += rank & -rank

    def first(self, *, after: float) -> int | None:
        """Return the least added offset that may be gone only after `after`, or None."""
        rank, least = bisect_left(self._moments, -after, key=lambda moment: -moment), inf
        while rank:
            least = min(least, self._least[rank])
            rank -= rank & -rank
        return None if least == inf else int(least)

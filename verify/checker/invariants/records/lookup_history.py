"""Check I18: compare each look-up by time with the final log (`verify.checker.look_ups` has the rules)."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import inf

from tidelog.history.operations import LookUpOk
from tidelog.model import TopicPartition
from verify.checker.facts import Facts, PartitionFacts, Source
from verify.checker.findings import seconds
from verify.checker.inputs.logs import FinalLog
from verify.checker.invariant import Ending, Handler, Invariant
from verify.checker.look_ups import Fault, LookUp, StoredLog, StoredRecord, Trim, Verdict, Wrong, judge, judge_log


class LookUps(Invariant):
    """Check I18: each look-up by time returned an answer that was possible for the final log.

    A replaced leader may still return a trimmed record. Compacted topics are not checked, because histories do not
    contain which record supersedes which.
    """

    key, name = "I18", "look-ups by time are exact"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._asked: dict[TopicPartition, list[tuple[Source, LookUpOk]]] = defaultdict(list)

    def handlers(self) -> Mapping[type, Handler]:
        return {LookUpOk: lambda source, event: self._asked[event.tp].append((source, event))}

    def conclude(self, ending: Ending) -> None:
        for tp, asked in self._asked.items():
            log = ending.log(tp)
            if log is None or tp.topic in ending.compacted:
                continue
            sources = {_look_up(event): source for source, event in asked}
            verdict = _verdict(log, self.facts.of(tp), self._trims(tp), [_look_up(event) for _, event in asked])
            self.tally.observations += len(asked)
            for wrong in verdict.wrong:
                if not self._is_excused(tp, wrong) and not self.only_counted():
                    self._report(tp, sources[wrong.look_up], wrong)

    def _is_excused(self, tp: TopicPartition, wrong: Wrong) -> bool:
        """Return whether a replaced leader that cannot know the trim may have returned the trimmed record."""
        asked, facts = wrong.look_up, self.facts.of(tp)
        return wrong.fault is Fault.TRIMMED and facts.may_answer_in_old_epoch(asked.asked_at, asked.answered_at)

    def _trims(self, tp: TopicPartition) -> list[Trim]:
        """Return the trims of a partition. A trim that a restarted broker may have forgotten counts as unanswered."""
        return [
            Trim(offset, t0, inf if t1 is None or self.facts.may_be_forgotten(tp, offset) else t1)
            for offset, t0, t1 in self.facts.of(tp).trims
        ]

    def _report(self, tp: TopicPartition, source: Source, wrong: Wrong) -> None:
        asked, t1 = wrong.look_up, int(wrong.look_up.answered_at)
        when = f"{seconds(int(asked.asked_at))}–{seconds(t1)}"
        answer = _describe_answer(asked)
        proof = [f"{source.name} looked up {asked.target} ms, {when}: {answer}"]
        if wrong.expected is not None:
            facts, offset = self.facts.of(tp), wrong.expected.offset
            there = facts.produce(facts.observed_offsets.id_at(offset))
            proof.append(f"offset {offset} of {wrong.expected.timestamp} ms: {there}")
        self.violated(tp, t1, wrong.fault.value, *proof)


def _look_up(event: LookUpOk) -> LookUp:
    found = None
    if event.offset >= 0:
        found = event.offset, event.ts, event.epoch
    return LookUp(event.target, event.t0, event.t1, found)


def _describe_answer(look_up: LookUp) -> str:
    if look_up.found is None:
        return "nothing"
    offset, timestamp, _ = look_up.found
    return f"offset {offset}" if timestamp is None else f"offset {offset} of {timestamp} ms"


def _verdict(log: FinalLog, facts: PartitionFacts, trims: list[Trim], asked: Iterable[LookUp]) -> Verdict:
    """Return the result of checking these look-ups of one partition against its final log and its trims."""
    if not trims:
        return judge_log(_ColumnsOfLog(log, facts), asked)
    return judge(_with_what_was_trimmed(log, facts), trims, asked, all_known_from=log.log_start)


def _with_what_was_trimmed(log: FinalLog, facts: PartitionFacts) -> Iterable[StoredRecord]:
    """Yield the log's records, and the trimmed records below its start that an acknowledgement or a read showed."""
    columns = _ColumnsOfLog(log, facts)
    for offset in log.offsets:
        record = columns.record(offset)
        if record is not None:
            yield record
    for event in facts.invocations:
        for record_id, timestamp, sent_at in zip(event.ids, event.ts, event.t, strict=True):
            seen = facts.observed_offsets.offset_of(record_id)
            if seen is not None and seen < log.log_start and log.place(seen) is None:
                yield StoredRecord(seen, timestamp, sent_at, _acknowledged_at(record_id, facts))


def _acknowledged_at(record_id: int, facts: PartitionFacts) -> float:
    """Return when a record was acknowledged with acks=all; `inf` if it was not."""
    t = facts.acknowledged.get(record_id)
    return inf if t is None else t


class _ColumnsOfLog(StoredLog):
    """A log without removed records. The first record at or after a time is the one at which the running maximum of
    timestamps reaches that time.
    """

    def __init__(self, log: FinalLog, facts: PartitionFacts) -> None:
        self._log, self._facts = log, facts
        self._greatest = array("q", accumulate(log.ts, max))

    def record(self, offset: int) -> StoredRecord | None:
        place = self._log.place(offset)
        if place is None:
            return None
        record_id = self._log.ids[place]
        sent_at = self._facts.invoked_at.get(record_id) or 0
        acknowledged_at = _acknowledged_at(record_id, self._facts)
        epoch = self._log.leader_epochs[place]
        return StoredRecord(offset, self._log.ts[place], sent_at, acknowledged_at, leader_epoch=epoch)

    def first_that_lasts(self, target: int, after: float) -> int | None:
        place = bisect_left(self._greatest, target)
        return self._log.offsets[place] if place < len(self._greatest) else None

    def committed_end(self, before: float) -> int:
        last = self._facts.acknowledgements.before(before)
        return 0 if last is None else last + 1

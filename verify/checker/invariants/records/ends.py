"""I8: where a partition ends, as its clients are told, never goes back and lies behind what was acknowledged.

And where it begins, as they are told, is where it was trimmed to, which no replica has left in the end.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.errors import OffsetOutOfRangeError
from tidelog.history.operations import EarliestOk, LatestOk, ReadFailed
from verify.checker.facts import Facts, PartitionFacts, Source
from verify.checker.findings import seconds
from verify.checker.invariant import Ending, Handler, Invariant
from verify.checker.logs import FinalLog
from verify.checker.outcomes import error_name

_OUT_OF_RANGE = error_name(OffsetOutOfRangeError)


class Ends(Invariant):
    """I8: the end that is told does not fall, in real time over all clients, also across leaders (KIP-207).

    It lies behind each offset acknowledged before the question, and no reader of such an offset is told that it is out
    of range, unless it was trimmed. The first offset that is told is no later than anybody has asked to trim to, and no
    earlier than what was acknowledged as trimmed before the question, unless a leader that was deposed and cannot know
    it has told it; nor does any log of the end begin earlier.
    """

    key, name = "I8", "the end never goes back"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._told: list[tuple[Source, LatestOk]] = []
        self._refused: list[tuple[Source, ReadFailed]] = []
        self._first: list[tuple[Source, EarliestOk]] = []
        self._judged_until = 0

    def handlers(self) -> Mapping[type, Handler]:
        return {LatestOk: self._latest, EarliestOk: self._earliest, ReadFailed: self._read_failed}

    def _latest(self, source: Source, event: LatestOk) -> None:
        self._told.append((source, event))

    def _earliest(self, source: Source, event: EarliestOk) -> None:
        self._first.append((source, event))

    def _read_failed(self, source: Source, event: ReadFailed) -> None:
        if event.error == _OUT_OF_RANGE and event.offset >= 0:
            self._refused.append((source, event))

    def examine(self) -> None:
        told, start = self._told, self._judged_until
        self._judged_until = len(told)
        for index in range(start, len(told)):
            source, event = told[index]
            facts = self.facts.of(event.tp)
            self.tally.observations += 1
            seen = facts.latest.before(event.t0)
            if seen is not None and event.offset < seen and not self.only_counted():
                earlier = next(
                    (who, each)
                    for who, each in told
                    if each.tp == event.tp and each.offset == seen and each.t1 < event.t0
                )
                says = f"the end was told as {event.offset}, and before that as {seen}"
                self.violated(event.tp, event.t1, says, _story(*earlier), _story(source, event))
            self._behind_acknowledged(facts, source, event)
        first, self._first = self._first, []
        for source, begin in first:
            self._not_behind_trims(self.facts.of(begin.tp), source, begin)
            self._not_before_trims(self.facts.of(begin.tp), source, begin)
        refused, self._refused = self._refused, []
        for source, failure in refused:
            self._in_range(self.facts.of(failure.tp), source, failure)

    def _behind_acknowledged(self, facts: PartitionFacts, source: Source, event: LatestOk) -> None:
        acknowledged = facts.acknowledgements.before(event.t0)
        if acknowledged is not None and event.offset <= acknowledged and not self.only_counted():
            says = f"the end was told as {event.offset}, and offset {acknowledged} had been acknowledged"
            witness = facts.produce(facts.sightings.id_at(acknowledged))
            self.violated(event.tp, event.t1, says, witness, _story(source, event))

    def _not_behind_trims(self, facts: PartitionFacts, source: Source, event: EarliestOk) -> None:
        self.tally.observations += 1
        trimmed = max((offset for offset, asked, _ in facts.trims if asked <= event.t1), default=0)
        if event.offset > trimmed and not self.only_counted():
            says = f"the first offset was told as {event.offset}, and nobody had asked to trim further than {trimmed}"
            when = f"{seconds(event.t0)}–{seconds(event.t1)}"
            self.violated(event.tp, event.t1, says, f"{source.name} asked for the beginning, {when}: {event.offset}")

    def _not_before_trims(self, facts: PartitionFacts, source: Source, event: EarliestOk) -> None:
        for offset, asked, answered in facts.trims:
            if answered is None or answered >= event.t0 or event.offset >= offset:
                continue
            may_be_old = facts.may_answer_from_the_past(event.t0, event.t1)
            if not may_be_old and not self.facts.has_forgotten_trims(answered, event.t1) and not self.only_counted():
                says = f"the first offset was told as {event.offset}, and what stands before {offset} had been trimmed"
                when = f"{seconds(event.t0)}–{seconds(event.t1)}"
                told = f"{source.name} asked for the beginning, {when}: {event.offset}"
                self.violated(event.tp, event.t1, says, _trim_story(offset, asked, answered), told)

    def conclude(self, ending: Ending) -> None:
        self.examine()
        for tp, logs in ending.logs.items():
            for offset, asked, answered in self.facts.of(tp).trims:
                if answered is not None and not self.facts.has_forgotten_trims(answered):
                    for log in logs:
                        self._trimmed(log, offset, asked, answered)

    def _trimmed(self, log: FinalLog, offset: int, asked: int, answered: int) -> None:
        self.tally.observations += 1
        if log.log_start < offset and not self.only_counted():
            says = f"{log.name} begins at {log.log_start}, and what stands before {offset} had been trimmed"
            self.violated(log.tp, answered, says, _trim_story(offset, asked, answered), str(log))

    def _in_range(self, facts: PartitionFacts, source: Source, event: ReadFailed) -> None:
        self.tally.observations += 1
        acknowledged = facts.acknowledgements.before(event.t0)
        trimmed = any(offset > event.offset and asked <= event.t1 for offset, asked, _ in facts.trims)
        if acknowledged is None or event.offset > acknowledged or trimmed or self.only_counted():
            return
        says = f"offset {event.offset} was called out of range, and {acknowledged} had been acknowledged"
        when = f"{seconds(event.t0)}–{seconds(event.t1)}"
        witness = facts.produce(facts.sightings.id_at(acknowledged))
        self.violated(event.tp, event.t1, says, witness, f"read by {source.name} at {event.offset}, {when}: refused")


def _trim_story(offset: int, asked: int, answered: int) -> str:
    return f"trim to {offset}, {seconds(asked)}–{seconds(answered)}: done"


def _story(source: Source, event: LatestOk) -> str:
    epoch = "" if event.epoch is None else f" in epoch {event.epoch}"
    return f"{source.name} asked for the end, {seconds(event.t0)}–{seconds(event.t1)}: {event.offset}{epoch}"

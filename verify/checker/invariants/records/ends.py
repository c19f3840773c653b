"""Check I8: the end offset returned to clients never decreases, and is above the acknowledged offsets.

The first offset returned to clients is neither above the highest requested trim nor below an acknowledged one. At the
end, no log begins below an acknowledged trim.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.errors import OffsetOutOfRangeError
from tidelog.history.operations import EarliestOk, LatestOk, ReadFailed
from verify.checker.facts import Facts, PartitionFacts, Source
from verify.checker.findings import seconds
from verify.checker.inputs.logs import FinalLog
from verify.checker.invariant import Ending, Handler, Invariant
from verify.checker.outcomes import error_name

_OUT_OF_RANGE = error_name(OffsetOutOfRangeError)


class Ends(Invariant):
    """Check I8: the returned end offset never decreases in real time over all clients and leaders (KIP-207).

    The end offset is above each offset acknowledged before the request. No reader of such an offset gets an
    out-of-range error, unless a trim of the record was requested. The returned first offset is at most the highest trim
    request. That offset is at least the offset of each trim acknowledged before the request, unless the answer may be
    that of a replaced leader that cannot know the trim. No final log begins earlier. A trim that a restarted broker may
    have forgotten does not count as acknowledged.
    """

    key, name = "I8", "the end never goes back"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._returned: list[tuple[Source, LatestOk]] = []
        self._refused: list[tuple[Source, ReadFailed]] = []
        self._first: list[tuple[Source, EarliestOk]] = []
        self._judged_until = 0

    def handlers(self) -> Mapping[type, Handler]:
        return {LatestOk: self._latest, EarliestOk: self._earliest, ReadFailed: self._read_failed}

    def _latest(self, source: Source, event: LatestOk) -> None:
        self._returned.append((source, event))

    def _earliest(self, source: Source, event: EarliestOk) -> None:
        self._first.append((source, event))

    def _read_failed(self, source: Source, event: ReadFailed) -> None:
        if event.error == _OUT_OF_RANGE and event.offset >= 0:
            self._refused.append((source, event))

    def examine(self) -> None:
        events, start = self._returned, self._judged_until
        self._judged_until = len(events)
        for index in range(start, len(events)):
            source, event = events[index]
            facts = self.facts.of(event.tp)
            self.tally.observations += 1
            seen = facts.latest.before(event.t0)
            if seen is not None and event.offset < seen and not self.only_counted():
                earlier = next(
                    (other, each)
                    for other, each in events
                    if each.tp == event.tp and each.offset == seen and each.t1 < event.t0
                )
                says = f"the returned end offset was {event.offset}, but {seen} before that"
                self.violated(event.tp, event.t1, says, _describe(*earlier), _describe(source, event))
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
            says = f"the returned end offset was {event.offset}, but offset {acknowledged} had been acknowledged"
            witness = facts.produce(facts.observed_offsets.id_at(acknowledged))
            self.violated(event.tp, event.t1, says, witness, _describe(source, event))

    def _not_behind_trims(self, facts: PartitionFacts, source: Source, event: EarliestOk) -> None:
        self.tally.observations += 1
        trimmed = max((offset for offset, asked, _ in facts.trims if asked <= event.t1), default=0)
        if event.offset > trimmed and not self.only_counted():
            says = f"the returned first offset was {event.offset}, but the highest trim request was {trimmed}"
            when = f"{seconds(event.t0)}–{seconds(event.t1)}"
            self.violated(event.tp, event.t1, says, f"{source.name} requested the first offset, {when}: {event.offset}")

    def _not_before_trims(self, facts: PartitionFacts, source: Source, event: EarliestOk) -> None:
        for offset, asked, answered in facts.trims:
            if answered is None or answered >= event.t0 or event.offset >= offset:
                continue
            may_be_old = facts.may_answer_in_old_epoch(event.t0, event.t1)
            is_forgotten = self.facts.may_be_forgotten(event.tp, offset, event.t1)
            if not may_be_old and not is_forgotten and not self.only_counted():
                says = f"the returned first offset was {event.offset}, but records below {offset} had been trimmed"
                when = f"{seconds(event.t0)}–{seconds(event.t1)}"
                request = f"{source.name} requested the first offset, {when}: {event.offset}"
                self.violated(event.tp, event.t1, says, _describe_trim(offset, asked, answered), request)

    def conclude(self, ending: Ending) -> None:
        self.examine()
        for tp, logs in ending.logs.items():
            for offset, asked, answered in self.facts.of(tp).trims:
                if answered is not None and not self.facts.may_be_forgotten(tp, offset):
                    for log in logs:
                        self._trimmed(log, offset, asked, answered)

    def _trimmed(self, log: FinalLog, offset: int, asked: int, answered: int) -> None:
        self.tally.observations += 1
        if log.log_start < offset and not self.only_counted():
            says = f"{log.name} begins at {log.log_start}, but records below {offset} had been trimmed"
            self.violated(log.tp, answered, says, _describe_trim(offset, asked, answered), str(log))

    def _in_range(self, facts: PartitionFacts, source: Source, event: ReadFailed) -> None:
        self.tally.observations += 1
        acknowledged = facts.acknowledgements.before(event.t0)
        trimmed = any(offset > event.offset and asked <= event.t1 for offset, asked, _ in facts.trims)
        if acknowledged is None or event.offset > acknowledged or trimmed or self.only_counted():
            return
        says = f"offset {event.offset} was reported as out of range, but {acknowledged} had been acknowledged"
        when = f"{seconds(event.t0)}–{seconds(event.t1)}"
        witness = facts.produce(facts.observed_offsets.id_at(acknowledged))
        self.violated(event.tp, event.t1, says, witness, f"read by {source.name} at {event.offset}, {when}: refused")


def _describe_trim(offset: int, asked: int, answered: int) -> str:
    return f"trim to {offset}, {seconds(asked)}–{seconds(answered)}: done"


def _describe(source: Source, event: LatestOk) -> str:
    epoch = "" if event.epoch is None else f" in epoch {event.epoch}"
    return f"{source.name} requested the end offset, {seconds(event.t0)}–{seconds(event.t1)}: {event.offset}{epoch}"

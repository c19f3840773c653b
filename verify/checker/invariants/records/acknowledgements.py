"""I1 and I13: what was acknowledged is there in the end, also what a leader acknowledged that was deposed later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.history.broker_events import Ack, BecomeLeader
from tidelog.history.operations import ProduceOk
from verify.checker.facts import Facts, PartitionFacts, Source
from verify.checker.findings import record_name, seconds
from verify.checker.invariant import Ending, Handler, Invariant
from verify.checker.logs import FinalLog


class Acknowledged(Invariant):
    """I1: each record acknowledged with acks=all stands at its offset, in what a client reads and in every replica.

    Before the end it is asked of each new leader that its log ends behind what was acknowledged; but not of one that
    slept, and hears of an epoch that another has ended. A record before the log's start was trimmed, or is lost: lost
    unless somebody asked for a trim; one at the log's end or behind it is lost, also where records are compacted.
    """

    key, name = "I1", "acknowledged records are there"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._elections: list[tuple[Source, BecomeLeader]] = []

    def handlers(self) -> Mapping[type, Handler]:
        return {BecomeLeader: lambda source, event: self._elections.append((source, event))}

    def examine(self) -> None:
        elections, self._elections = self._elections, []
        for source, event in elections:
            facts = self.facts.of(event.tp)
            promised = facts.acknowledgements.before(event.t)
            if promised is None or self._is_over(event):
                continue
            self.tally.observations += 1
            if event.leo <= promised and not self.only_counted():
                leads = f"broker {source.name} leads in epoch {event.epoch} from offset {event.leo} on"
                self.violated(
                    event.tp,
                    event.t,
                    f"{leads}, and offset {promised} had been acknowledged",
                    *facts.witnesses(promised, facts.sightings.id_at(promised)),
                    f"{leads}, since {seconds(event.t)}",
                )

    def _is_over(self, election: BecomeLeader) -> bool:
        return any(term.epoch > election.epoch and term.begin < election.t for term in self.facts.of(election.tp).terms)

    def conclude(self, ending: Ending) -> None:
        self.examine()
        for facts in self.partitions():
            promised = sum(len(event.ids) for _, event in facts.produces)
            whole: list[FinalLog] = []
            for log in ending.logs.get(facts.tp, ()):
                self.tally.observations += promised
                if any(map(log.has_the_same_records, whole)):
                    continue
                lacking = [event for _, event in facts.produces if not log.holds(event.offsets, event.ids)]
                for event in lacking:
                    self._missing(facts, log, event, ending)
                if not lacking:
                    whole.append(log)

    def _missing(self, facts: PartitionFacts, log: FinalLog, event: ProduceOk, ending: Ending) -> None:
        trimmed_to = facts.trimmed_to
        for offset, record_id, t in zip(event.offsets, event.ids, event.t, strict=True):
            found = log.id_at(offset)
            if found == record_id or (found is None and ending.may_lack(log, offset, trimmed_to)):
                continue
            if self.only_counted():
                continue
            there = "nothing" if found is None else record_name(found)
            self.violated(
                facts.tp,
                t,
                f"{record_name(record_id)} was acknowledged at offset {offset}; there is {there} in {log.name}",
                facts.produce(record_id),
                str(log),
            )


class LeaderCompleteness(Invariant):
    """I13: what was acknowledged in an epoch that a later leader ended is there, in that epoch or an earlier one.

    Judged are the acknowledgements of clients that name the epoch, and those that the brokers wrote down themselves.
    What may be gone is as in I1.
    """

    key, name = "I13", "what deposed leaders acknowledged is there"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._acks: list[tuple[Source, Ack]] = []

    def handlers(self) -> Mapping[type, Handler]:
        return {Ack: lambda source, event: self._acks.append((source, event))}

    def conclude(self, ending: Ending) -> None:
        last_epochs = {
            tp: max(term.epoch for term in facts.terms) for tp, facts in self.facts.partitions.items() if facts.terms
        }
        for source, ack in self._acks:
            log = ending.log(ack.tp)
            if log is None or ack.epoch >= last_epochs.get(ack.tp, -1):
                continue
            self.tally.observations += 1
            wrong = _later_or_gone(log, ack.last, ack.epoch, ending, self.facts.of(ack.tp).trimmed_to)
            if wrong and not self.only_counted():
                told = f"broker {source.name} acknowledged up to offset {ack.last} in epoch {ack.epoch}"
                self.violated(ack.tp, ack.t, f"{told}; in the end {wrong}", f"{told} at {seconds(ack.t)}", str(log))
        for facts in self.partitions():
            log, last_epoch = ending.log(facts.tp), last_epochs.get(facts.tp, -1)
            if log is None or last_epoch < 0:
                continue
            trimmed_to = facts.trimmed_to
            for record_id, offset, epoch, t in _acknowledged_before(last_epoch, facts):
                self.tally.observations += 1
                wrong = _later_or_gone(log, offset, epoch, ending, trimmed_to)
                if wrong and not self.only_counted():
                    says = f"offset {offset} was acknowledged in epoch {epoch}, which ended; in the end {wrong}"
                    self.violated(facts.tp, t, says, facts.produce(record_id), str(log))


def _acknowledged_before(epoch: int, facts: PartitionFacts) -> Iterator[tuple[int, int, int, int]]:
    """(id, offset, epoch, moment) of the acknowledgements in an earlier epoch, of those whose epoch was told."""
    for _, event in facts.produces:
        if event.epochs and min(event.epochs) < epoch:
            told = zip(event.ids, event.offsets, event.epochs, event.t, strict=True)
            yield from (each for each in told if each[2] < epoch)


def _later_or_gone(log: FinalLog, offset: int, epoch: int, ending: Ending, trimmed_to: int) -> str:
    """What is wrong with an offset that was acknowledged in this epoch; empty where nothing is."""
    place = log.place(offset)
    if place is None:
        if ending.may_lack(log, offset, trimmed_to):
            return ""
        return f"the log ends at {log.leo}" if offset >= log.leo else f"there is nothing at {offset}"
    found = log.leader_epochs[place]
    return f"offset {offset} is of epoch {found}" if found > epoch else ""

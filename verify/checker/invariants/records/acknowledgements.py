"""Check I1 and I13: acknowledged records exist at the end, including those acknowledged by a leader that was
replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.history.broker_events import Ack, BecomeLeader
from tidelog.history.operations import ProduceOk
from verify.checker.facts import Facts, PartitionFacts, Source
from verify.checker.findings import record_name, seconds
from verify.checker.inputs.logs import FinalLog
from verify.checker.invariant import Ending, Handler, Invariant


class Acknowledged(Invariant):
    """Check I1: each record acknowledged with acks=all is at its offset, in the leader's log and in every replica.

    During the run, the log of each new leader must end after the acknowledged records. A broker that was paused and
    learns of an old epoch late is exempt. A record below the log start was trimmed if a client requested that, and is
    lost otherwise. A record at or above the log end is lost, even in a compacted topic.
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
                    f"{leads}, but offset {promised} had been acknowledged",
                    *facts.evidence_of(promised, facts.observed_offsets.id_at(promised)),
                    f"{leads}, since {seconds(event.t)}",
                )

    def _is_over(self, election: BecomeLeader) -> bool:
        """Return whether another leader had begun a later epoch before this election was learned of."""
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
                f"{record_name(record_id)} was acknowledged at offset {offset}, but {log.name} has {there} there",
                facts.produce(record_id),
                str(log),
            )


class LeaderCompleteness(Invariant):
    """Check I13: a record acknowledged in an ended leader epoch is at its offset, in that epoch or an earlier one.

    An epoch has ended if the partition had a later one. The check covers acknowledgements to clients whose epoch is
    known. Each Ack event of a broker is checked too, at its last offset. A record may be missing only if it was trimmed
    or compacted.
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
                evidence = f"broker {source.name} acknowledged up to offset {ack.last} in epoch {ack.epoch}"
                self.violated(
                    ack.tp, ack.t, f"{evidence}; at the end {wrong}", f"{evidence} at {seconds(ack.t)}", str(log)
                )
        for facts in self.partitions():
            log, last_epoch = ending.log(facts.tp), last_epochs.get(facts.tp, -1)
            if log is None or last_epoch < 0:
                continue
            trimmed_to = facts.trimmed_to
            for record_id, offset, epoch, t in _acknowledged_before(last_epoch, facts):
                self.tally.observations += 1
                wrong = _later_or_gone(log, offset, epoch, ending, trimmed_to)
                if wrong and not self.only_counted():
                    says = f"offset {offset} was acknowledged in epoch {epoch}, which ended; at the end {wrong}"
                    self.violated(facts.tp, t, says, facts.produce(record_id), str(log))


def _acknowledged_before(epoch: int, facts: PartitionFacts) -> Iterator[tuple[int, int, int, int]]:
    """Yield (id, offset, epoch, time) of the acknowledgements in an earlier epoch, as far as their epoch is known."""
    for _, event in facts.produces:
        if event.epochs and min(event.epochs) < epoch:
            rows = zip(event.ids, event.offsets, event.epochs, event.t, strict=True)
            yield from (each for each in rows if each[2] < epoch)


def _later_or_gone(log: FinalLog, offset: int, epoch: int, ending: Ending, trimmed_to: int) -> str:
    """Return what is wrong with an offset that was acknowledged in this epoch, or an empty text.

    Wrong is a record of a later epoch, or a missing one that was neither trimmed nor compacted.
    """
    place = log.place(offset)
    if place is None:
        if ending.may_lack(log, offset, trimmed_to):
            return ""
        return f"the log ends at {log.leo}" if offset >= log.leo else f"the log has no record at {offset}"
    found = log.leader_epochs[place]
    return f"offset {offset} is of epoch {found}" if found > epoch else ""

"""Check I14: an acknowledgement with acks=all requires enough replicas that have the record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.history.broker_events import Ack, BecomeLeader, Broker, Registered
from tidelog.model import TopicPartition
from verify.checker.facts import Facts, Source
from verify.checker.findings import seconds
from verify.checker.invariant import Ending, Handler, Invariant


class _UnknownEnd(NamedTuple):
    """An acknowledgement by a leader that did not know the log end offset of a member of its maximal ISR.

    member   the broker id of that member
    since    the time at which the source became leader of that epoch; if not recorded, that of the acknowledgement
    """

    source: Source
    ack: Ack
    member: int
    since: int


class InSyncReplicas(Invariant):
    """Check I14: at each acknowledgement the ISR is large enough, and all members of the maximal ISR have the records.

    The leader is a member, and all members are replicas. If a member's log end offset is unknown, there are two
    permitted cases. The records were already committed when the leader's epoch began, and a retry is acknowledged
    again. Or the member has started or registered again since then; whether it had the records is not checked. The
    leader may learn of the registration before the broker records it, so this is checked at the end.
    """

    key, name = "I14", "acknowledged by enough replicas"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        #: The time and the high watermark at which each leader began its epoch.
        self._began: dict[tuple[Source, TopicPartition, int], tuple[int, int]] = {}
        self._registered: dict[int, int] = defaultdict(int)
        self._unknown_ends: list[_UnknownEnd] = []

    def handlers(self) -> Mapping[type, Handler]:
        return {Ack: self._acknowledged, BecomeLeader: self._leads, Registered: self._registers}

    def _leads(self, source: Source, event: BecomeLeader) -> None:
        self._began[source, event.tp, event.epoch] = event.t, event.hw

    def _registers(self, source: Source, event: Registered) -> None:
        self._is_new(int(source.name), event.t)

    def _is_new(self, broker: int, t: int) -> None:
        self._registered[broker] = max(t, self._registered[broker])

    def _acknowledged(self, source: Source, event: Ack) -> None:
        self.tally.observations += 1
        for says in _wrong(int(source.name), event):
            self._report(source, event, says)
        unknown = {*event.isr, *event.pending}.difference(event.leos)
        if unknown:
            since, committed = self._began.get((source, event.tp, event.epoch), (event.t, 0))
            if event.last >= committed:
                self._unknown_ends += [_UnknownEnd(source, event, member, since) for member in sorted(unknown)]

    def conclude(self, ending: Ending) -> None:
        for life in self.facts.sources:
            if isinstance(life.header, Broker):
                self._is_new(life.header.broker_id, life.header.t)
        for source, ack, member, since in self._unknown_ends:
            if self._registered[member] <= since:
                self._report(
                    source, ack, f"offset {ack.last} was acknowledged, but the end of broker {member} was unknown"
                )

    def _report(self, source: Source, event: Ack, says: str) -> None:
        if not self.only_counted():
            proof = (
                f"broker {source.name} acknowledged up to offset {event.last} in epoch {event.epoch} at"
                f" {seconds(event.t)}: ISR {list(event.isr)}, pending {list(event.pending)}, log end offsets"
                f" {dict(event.leos)}, replicas {list(event.replicas)}, min.insync.replicas {event.min_isr}"
            )
            self.violated(event.tp, event.t, says, proof)


def _wrong(leader: int, ack: Ack) -> Iterator[str]:
    """Yield what is wrong with an acknowledgement by this leader, as far as log end offsets are known."""
    isr, maximal = set(ack.isr), {*ack.isr, *ack.pending}
    if len(isr) < ack.min_isr:
        yield f"acknowledged by an ISR of {len(isr)}, below min.insync.replicas {ack.min_isr}"
    short = {each: ack.leos[each] for each in sorted(maximal) if each in ack.leos and ack.leos[each] <= ack.last}
    if short:
        yield f"offset {ack.last} was acknowledged before all of the maximal ISR had it: {short}"
    if leader not in isr:
        yield f"acknowledged by broker {leader}, which is not in the ISR"
    if not maximal <= set(ack.replicas):
        yield f"{sorted(maximal - set(ack.replicas))} in the ISR are not replicas"

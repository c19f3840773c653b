"""I14: an acknowledgement to acks=all stands on enough replicas that have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.checker.broker_events import Ack
from tidelog.checker.facts import Source
from tidelog.checker.findings import seconds
from tidelog.checker.invariant import Handler, Invariant


class InSyncReplicas(Invariant):
    """I14: at each acknowledgement the confirmed ISR is large enough, the maximal ISR (with those pending) has it all.

    Its leader is a member, and all members are replicas.
    """

    key, name = "I14", "acknowledged by enough replicas"

    def handlers(self) -> Mapping[type, Handler]:
        return {Ack: self._acknowledged}

    def _acknowledged(self, source: Source, event: Ack) -> None:
        self.tally.observations += 1
        for says in _wrong(int(source.name), event):
            if not self.only_counted():
                proof = (
                    f"broker {source.name} acknowledged up to offset {event.last} in epoch {event.epoch} at"
                    f" {seconds(event.t)}: ISR {list(event.isr)}, pending {list(event.pending)}, log end offsets"
                    f" {dict(event.leos)}, replicas {list(event.replicas)}, min.insync.replicas {event.min_isr}"
                )
                self.violated(event.tp, event.t, says, proof)


def _wrong(leader: int, ack: Ack) -> Iterator[str]:
    isr, maximal = set(ack.isr), {*ack.isr, *ack.pending}
    if len(isr) < ack.min_isr:
        yield f"acknowledged by an ISR of {len(isr)}, below min.insync.replicas {ack.min_isr}"
    # Of one that registered anew since the record was committed (a retry is acknowledged again) nothing is known yet.
    short = {each: ack.leos[each] for each in sorted(maximal) if each in ack.leos and ack.leos[each] <= ack.last}
    if short:
        yield f"offset {ack.last} was acknowledged before all of the maximal ISR had it: {short}"
    if leader not in isr:
        yield f"acknowledged by broker {leader}, which is not in the ISR"
    if not maximal <= set(ack.replicas):
        yield f"{sorted(maximal - set(ack.replicas))} in the ISR are no replicas"

"""Check I20: no broker acts on outdated requests: after their deadline, or of a lower epoch."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.history.broker_events import Append, BecomeFollower, BecomeLeader, HighWatermark, Processed, Reject
from tidelog.model import TopicPartition
from verify.checker.facts import Facts, Source
from verify.checker.findings import seconds
from verify.checker.invariant import Handler, Invariant


class NoReplays(Invariant):
    """Check I20: no request is processed after its deadline, or with a lower epoch than the broker knows.

    A refused outdated request counts as an observation. A leader's appends and a replica's high watermarks belong to
    the leader epoch of the broker, or to a later one that the broker learns by them.
    """

    key, name = "I20", "nothing stale is acted on"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._epochs: dict[tuple[str, TopicPartition], tuple[int, int]] = {}

    def handlers(self) -> Mapping[type, Handler]:
        return {
            Processed: self._processed,
            Reject: self._rejected,
            BecomeLeader: self._changed_role,
            BecomeFollower: self._changed_role,
            Append: self._appended,
            HighWatermark: self._moved,
        }

    def _processed(self, source: Source, event: Processed) -> None:
        self.tally.observations += 1
        if 0 < event.deadline < event.t and not self.only_counted():
            says = f"{event.api} was processed {(event.t - event.deadline) / 1e6:.0f} ms after its deadline"
            self.violated(None, event.t, says, f"{_proof(source, event)}; its deadline was {seconds(event.deadline)}")
        if 0 <= event.epoch < event.known and not self.only_counted():
            says = f"{event.api} of epoch {event.epoch} was processed in epoch {event.known}"
            self.violated(None, event.t, says, _proof(source, event))

    def _rejected(self, _source: Source, _event: Reject) -> None:
        self.tally.observations += 1

    def _changed_role(self, source: Source, event: BecomeLeader | BecomeFollower) -> None:
        self._epochs[source.name, event.tp] = event.epoch, event.t

    def _appended(self, source: Source, event: Append) -> None:
        # A follower's batches have the epochs in which a leader wrote them.
        if event.role == "leader":
            self._in_epoch(source, event.tp, event.epoch, event.t, f"appended {event.base}–{event.last}")

    def _moved(self, source: Source, event: HighWatermark) -> None:
        self._in_epoch(source, event.tp, event.epoch, event.t, f"moved its high watermark to {event.value}")

    def _in_epoch(self, source: Source, tp: TopicPartition, epoch: int, t: int, did: str) -> None:
        self.tally.observations += 1
        known, since = self._epochs.get((source.name, tp), (-1, 0))
        if 0 <= epoch < known and not self.only_counted():
            says = f"broker {source.name} {did} in epoch {epoch}, but was in epoch {known} already"
            learned = f"broker {source.name} entered epoch {known} at {seconds(since)}"
            self.violated(tp, t, says, learned, f"broker {source.name} {did} at {seconds(t)}")


def _proof(source: Source, event: Processed) -> str:
    return f"broker {source.name} processed {event.api} at {seconds(event.t)}"

"""Check I11: a replica's high watermark never decreases within a leader epoch."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.history.broker_events import BecomeLeader, HighWatermark
from tidelog.model import TopicPartition
from verify.checker.facts import Facts, Source
from verify.checker.findings import seconds
from verify.checker.invariant import Handler, Invariant


class HighWatermarks(Invariant):
    """Check I11 for each process of a replica and leader epoch, because a replica may know less in another epoch or
    after a restart.

    I8 checks that no leader returns an end offset to clients that is below an earlier one.
    """

    key, name = "I11", "high watermarks never fall"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._last: dict[tuple[str, int, TopicPartition, int], tuple[int, int]] = {}

    def handlers(self) -> Mapping[type, Handler]:
        return {
            HighWatermark: lambda source, event: self._at(source, event.tp, event.epoch, event.value, event.t),
            BecomeLeader: lambda source, event: self._at(source, event.tp, event.epoch, event.hw, event.t),
        }

    def _at(self, source: Source, tp: TopicPartition, epoch: int, value: int, t: int) -> None:
        self.tally.observations += 1
        key = (source.name, source.life, tp, epoch)
        last = self._last.get(key)
        self._last[key] = value, t
        if last is not None and value < last[0] and not self.only_counted():
            says = f"broker {source.name}'s high watermark fell from {last[0]} to {value} in epoch {epoch}"
            proof = (
                f"broker {source.name}: {each} in epoch {epoch} at {seconds(at)}" for each, at in (last, (value, t))
            )
            self.violated(tp, t, says, *proof)

"""A twin that knows every log of a scenario, and judges each election by the controller."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from cluster.controller.unclean_recovery import LogEnd
from cluster.state import BrokerRegistration, PartitionState, WriteState
from tests.cluster.arrivals_brokers import BROKERS, PARTITIONS, TIMEOUT_MS, Process, reach
from tidelog.model import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from tests.cluster.arrivals_stage import Stage


class Twin:
    """Knows every log, and reports for each election of one controller whether a better replica was passed over.

    seen                the registrations as the controller has read them
    moment              counts the losses that the controller has learned of
    lost_at             the last moment at which a replica of a partition was lost
    asked               the moment, and the time, at which a broker was last asked for the end of a log
    answered_at         the moment of the last request that a broker has answered
    replicas_with_loss  the brokers that have reported that they lack records of a partition
    requested           partitions for which an unclean election was requested
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.seen: dict[int, BrokerRegistration] = {}
        self.moment = 0
        self.lost_at: dict[TopicPartition, int] = dict.fromkeys(stage.tps, 0)
        self.asked: dict[tuple[int, TopicPartition], tuple[int, int]] = {}
        self.answered_at: dict[tuple[int, TopicPartition], int] = {}
        self.replicas_with_loss: set[tuple[int, TopicPartition]] = set()
        self.requested: set[TopicPartition] = set()
        self.trusted_at: dict[TopicPartition, int] = dict.fromkeys(stage.tps, stage.now_ms)

    # --- what the controller has heard ------------------------------------------------------------------------

    def on_registrations(self, registered: Mapping[int, BrokerRegistration]) -> None:
        """Note that the controller reads the registrations."""
        self._note_trusted()
        for broker_id in BROKERS:
            before, now = self.seen.get(broker_id), registered.get(broker_id)
            if (before and before.epoch) != (now and now.epoch):
                self._forget(broker_id)
                if before is not None or (now is not None and now.possibly_short):
                    self._note_lost(broker_id)
        self.seen = dict(registered)
        self._note_trusted()

    def _forget(self, broker_id: int) -> None:
        for tp in self.stage.tps:
            self.asked.pop((broker_id, tp), None)
            self.answered_at.pop((broker_id, tp), None)
            self.replicas_with_loss.discard((broker_id, tp))

    def _note_lost(self, broker_id: int) -> None:
        self.moment += 1
        for tp in self.stage.tps:
            if broker_id in PARTITIONS[tp.partition]:
                self.lost_at[tp] = self.moment

    def _note_trusted(self) -> None:
        """Note the time, because the wait for absent members begins when no trusted member of the ISR is registered."""
        for tp in self.stage.tps:
            if tp in self.stage.states and self.trusted(tp, self.stage.states[tp].state.isr):
                self.trusted_at[tp] = self.stage.now_ms

    def on_request(self, broker_id: int, tps: tuple[TopicPartition, ...]) -> None:
        """Note that the controller asks a broker for log ends."""
        for tp in tps:
            self.asked[broker_id, tp] = self.moment, self.stage.now_ms
            self.answered_at.pop((broker_id, tp), None)

    def on_answer(self, broker_id: int, ends: Mapping[TopicPartition, LogEnd], question: int) -> None:
        """Note that a broker answers a request of that moment."""
        for tp, end in ends.items():
            if question >= self.asked.get((broker_id, tp), (question + 1, 0))[0]:
                self.answered_at[broker_id, tp] = question
            if end.lacks:
                self.replicas_with_loss.add((broker_id, tp))

    # --- what it makes of an election ---------------------------------------------------------------------------

    def choose_recovery_leader(self, write: WriteState) -> None:
        """Assert that a new leader that may lack records reaches as far as any other candidate."""
        tp, leader = write.tp, write.state.leader
        if write.expected < 0 or leader == NO_LEADER:
            return
        before = self.stage.history[tp, write.expected]
        trusted = self.trusted(tp, before.isr)
        if leader in trusted or leader == before.leader:
            return
        self.stage.elections += 1
        assert not trusted, f"{tp}: {leader} is elected though {trusted} of {before} is registered and has everything"
        problem = self._wrong_recovery(tp, leader, before)
        if problem and (tp in self.requested or (self.stage.unclean and not self._suspects_without_loss(tp, before))):
            problem = self._wrong_unclean_election(tp, leader)
        assert problem == "", f"{tp}: {leader} is elected upon {before}, and {problem}"

    def trusted(self, tp: TopicPartition, isr: tuple[int, ...]) -> list[int]:
        """Return the registered ISR members that cannot have lost anything, as far as the controller knows."""
        return [
            each
            for each in isr
            if each in self.seen and not self._life(each).may_lack(tp) and not self._lacks(each, tp)
        ]

    def _wrong_recovery(self, tp: TopicPartition, leader: int, before: PartitionState) -> str:
        """Return the error in the choice of a suspect ISR member or an eligible replica, or ""."""
        given_up = () if self.stage.unclean else before.eligible
        candidates = (*before.isr, *given_up)
        if leader not in candidates:
            return "it was not in sync"
        away = [each for each in candidates if each not in self.seen]
        if away and self.stage.now_ms - self.trusted_at[tp] < TIMEOUT_MS:
            return f"{away} were not waited for"
        if not self._is_only_candidate(before) and (silent := self._without_valid_answer(tp, candidates)):
            return f"{silent} have not answered"
        sound = [each for each in candidates if each in self.seen and not self._lacks(each, tp)]
        in_sync = [each for each in sound if each in before.isr]
        if problem := self._passed_over(tp, leader, in_sync):
            return problem
        best = max((self._life(each).logs[tp] for each in in_sync), key=reach, default=())
        electable = [each for each in sound if each in before.isr or self._life(each).logs[tp][: len(best)] == best]
        if leader not in electable:
            return "its log does not hold all that is left in sync"
        return self._passed_over(tp, leader, electable)

    def _wrong_unclean_election(self, tp: TopicPartition, leader: int) -> str:
        """Return the error in the choice of any replica, or ""."""
        present = [each for each in PARTITIONS[tp.partition] if each in self.seen]
        if len(present) > 1 and (silent := self._without_valid_answer(tp, present)):
            return f"{silent} have not answered"
        return self._passed_over(tp, leader, present)

    def _is_only_candidate(self, before: PartitionState) -> bool:
        return len(before.isr) == 1 and (self.stage.unclean or not before.eligible)

    def _suspects_without_loss(self, tp: TopicPartition, before: PartitionState) -> list[int]:
        """Return the registered ISR members that may have all records."""
        return [each for each in before.isr if each in self.seen and not self._lacks(each, tp)]

    def _passed_over(self, tp: TopicPartition, leader: int, replicas: Collection[int]) -> str:
        """Return a sentence about a registered replica whose log reaches farther than the leader's, or ""."""
        farthest = max(replicas, key=lambda each: self._reach(each, tp), default=leader)
        if self._reach(farthest, tp) <= self._reach(leader, tp) or self._is_silent(farthest, tp):
            return ""
        return f"{farthest} reaches to {self._reach(farthest, tp)}, the leader to {self._reach(leader, tp)}"

    def _without_valid_answer(self, tp: TopicPartition, replicas: Collection[int]) -> list[int]:
        """Return the registered replicas whose answer is missing or older than the last loss."""
        return [
            each
            for each in replicas
            if each in self.seen
            and self.answered_at.get((each, tp), -1) < self.lost_at[tp]
            and not self._is_silent(each, tp)
        ]

    def _is_silent(self, broker_id: int, tp: TopicPartition) -> bool:
        """Return whether the broker was asked long ago and has not answered."""
        if (broker_id, tp) in self.answered_at or (broker_id, tp) not in self.asked:
            return False
        return self.stage.now_ms - self.asked[broker_id, tp][1] >= TIMEOUT_MS

    def _lacks(self, broker_id: int, tp: TopicPartition) -> bool:
        """Return whether the broker has reported that it lacks records, and has not got them since."""
        return (broker_id, tp) in self.replicas_with_loss and tp not in self._life(broker_id).whole

    def _life(self, broker_id: int) -> Process:
        """Return the process of the broker that the controller knows."""
        return self.stage.lives[self.seen[broker_id].epoch]

    def _reach(self, broker_id: int, tp: TopicPartition) -> tuple[int, int]:
        return reach(self._life(broker_id).logs[tp])

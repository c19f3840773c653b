"""The stage of the controller's tests: ZooKeeper, which stores states and refuses old versions, and brokers.

Writes wait until `settle`; a live broker answers at once, unless it is `silent`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cluster.controller.controller import Controller
from cluster.controller.controller_context import ControllerContext
from cluster.controller.effects import (
    AskLogEnds,
    ClearPossiblyShort,
    CloseChannel,
    CompleteReassignment,
    Effect,
    MoveChannel,
    OpenChannel,
    RemoveTopic,
    SendLeaderAndIsr,
    SendMetadata,
    SendStopReplica,
    WriteOutcome,
    WriteRefused,
    Written,
)
from cluster.controller.unclean_recovery import LogEnd
from cluster.state import (
    NO_VERSION,
    BrokerRegistration,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    VersionedState,
    WriteState,
)
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.listeners import BROKERS, CLIENTS

TP = TopicPartition("t", 0)
LISTENERS = {CLIENTS: Endpoint("h", 1), BROKERS: Endpoint("h", 2)}


def broker(broker_id: int, epoch: int = 0) -> BrokerRegistration:
    return BrokerRegistration(broker_id, LISTENERS, epoch or broker_id * 10)


def short(broker_id: int, epoch: int) -> BrokerRegistration:
    """Return the registration of a broker whose machine went down, so that unflushed records may be lost."""
    return replace(broker(broker_id, epoch), possibly_short=True)


class Cluster:
    """ZooKeeper's states and live registrations around one controller; writes wait until `settle`."""

    def __init__(self, *broker_ids: int, controller_epoch: int = 1, controller_id: int = 9) -> None:
        self.controller_id = controller_id
        self.live = {broker_id: broker(broker_id) for broker_id in broker_ids}
        self.states: dict[TopicPartition, VersionedState] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.silent: set[int] = set()
        self.unanswered: dict[int, int] = {}
        self.waiting: list[WriteState] = []
        self.completing: list[str] = []
        self.asked: list[tuple[int, list[TopicPartition]]] = []
        self.cleared_marks: list[int] = []
        self.stops: list[tuple[int, list[TopicPartition]]] = []
        self.history: list[tuple[TopicPartition, PartitionState]] = []
        self.log: list[str] = []
        self.sent: dict[TopicPartition, tuple[int, ...]] = {}
        self.begin_term(controller_epoch)

    def begin_term(self, epoch: int) -> None:
        """Let a new controller read ZooKeeper."""
        self.waiting.clear()
        self.completing.clear()
        self.stops.clear()
        self.unanswered.clear()
        self.controller = Controller(self.controller_id, epoch)
        self.play(self.controller.begin(self.live, self.topics, self.states))

    @property
    def context(self) -> ControllerContext:
        return self.controller.context

    def play(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case WriteState():
                    self.waiting.append(effect)
                case SendLeaderAndIsr(broker_id, partitions):
                    assert broker_id in self.context.brokers
                    assert partitions, "a request without a partition"
                    for p in partitions:
                        isr = ",".join(map(str, p.isr))
                        self.log.append(f"tell {broker_id}: {p.topic}-{p.partition} leader={p.leader} isr={isr}")
                case CompleteReassignment(topic):
                    self.completing.append(topic)
                case SendStopReplica(broker_id, stops):
                    if deletions := [TopicPartition(s.topic, s.partition) for s in stops if s.delete]:
                        self.stops.append((broker_id, deletions))
                    for verb, delete in (("halt", False), ("stop", True)):
                        if named := " ".join(f"{s.topic}-{s.partition}" for s in stops if s.delete == delete):
                            self.log.append(f"{verb} {broker_id}: {named}")
                case AskLogEnds(broker_id, tps):
                    self.asked.append((broker_id, list(tps)))
                case ClearPossiblyShort(registration):
                    self.cleared_marks.append(registration.broker_id)
                    self.live[registration.broker_id] = replace(registration, possibly_short=False)
                case RemoveTopic(topic):
                    self.log.append(f"remove {topic}")
                case OpenChannel(registration):
                    self.log.append(f"open {registration.broker_id}@{registration.epoch}")
                case MoveChannel(registration):
                    self.log.append(f"move {registration.broker_id} to {registration.replication_endpoint}")
                case CloseChannel(broker_id):
                    self.unanswered.pop(broker_id, None)
                    self.log.append(f"close {broker_id}")
                case SendMetadata(broker_ids, shown):
                    self.sent |= {TopicPartition(p.topic, p.partition): (*p.replicas, *p.leaving) for p in shown}
                    assert set(broker_ids) <= self.context.brokers.keys()
                    self.unanswered |= dict.fromkeys(broker_ids, self.controller.liveness.epoch)
        self.answer_requests()

    def answer_requests(self) -> None:
        """Let all brokers that are not silent answer their requests."""
        for broker_id in sorted(self.unanswered.keys() - self.silent):
            if (asked := self.unanswered.pop(broker_id, None)) is not None:
                self.play(self.controller.broker_answered(broker_id, asked))

    def report_log_end(
        self,
        broker_id: int,
        end: int,
        last_epoch: int = 0,
        *,
        lacks: bool = False,
        epochs: tuple[tuple[int, int], ...] = ((0, 0),),
    ) -> None:
        """Let the broker report the log ends that it was asked for."""
        tps = [tp for asked, tps in self.asked if asked == broker_id for tp in tps]
        self.asked = [question for question in self.asked if question[0] != broker_id]
        ends = dict.fromkeys(tps, LogEnd(last_epoch, end, lacks, epochs))
        self.play(self.controller.log_ends_reported(broker_id, ends, self.controller.liveness.epoch))

    def report_log_ends(self, ends: dict[int, int]) -> None:
        """Let only the brokers that were asked report their log ends."""
        assert {broker_id for broker_id, _ in self.asked} == ends.keys()
        for broker_id, end in ends.items():
            self.report_log_end(broker_id, end)

    def resume_answers(self, *broker_ids: int) -> None:
        """Let these brokers answer again."""
        self.silent.difference_update(broker_ids)
        self.answer_requests()

    def settle(self, limit: int = 100) -> None:
        """Let ZooKeeper answer all writes, and perform the effects that follow."""
        while self.waiting or self.completing:
            limit -= 1
            assert limit, "the controller does not come to rest"
            writes, self.waiting = self.waiting, []
            self.play(self.controller.states_written([self.answer(write) for write in writes]))
            topics, self.completing = self.completing, []
            for topic in topics:
                if (settled := self.controller.replica_deletion.completed_assignment(topic)) is not None:
                    self.assign(settled)

    def assign(self, wanted: TopicAssignment) -> None:
        """Let the controller write an assignment; after a conflict, it takes the one found."""
        if self.topics[wanted.topic].version == wanted.version:
            self.topics[wanted.topic] = replace(wanted, version=wanted.version + 1)
        self.play(self.controller.assignment_written(self.topics[wanted.topic]))

    def reassign(self, tp: TopicPartition, *target: int) -> None:
        """Request these replicas; without any, cancel the reassignment in progress."""
        assignment = self.context.topics[tp.topic]
        now = assignment.assigned(tp.partition)
        self.assign(assignment.reassigned({tp.partition: now.toward(target or now.origin)}))

    def assigned(self, tp: TopicPartition) -> ReplicaAssignment:
        return self.topics[tp.topic].assigned(tp.partition)

    def answer_stops(self) -> None:
        """Let the brokers delete their replicas as requested."""
        stops, self.stops = self.stops, []
        for broker_id, tps in stops:
            if broker_id in self.live:
                self.play(self.controller.replicas_stopped(broker_id, tps))

    def answer(self, write: WriteState) -> WriteOutcome:
        actual = self.states.get(write.tp)
        if (NO_VERSION if actual is None else actual.partition_epoch) != write.expected:
            return WriteRefused(write.tp, actual)
        self.states[write.tp] = VersionedState(write.state, write.expected + 1)
        self.history.append((write.tp, write.state))
        return Written(write.tp, write.expected + 1)

    def create(self, topic: str, *replicas: tuple[int, ...], **configs: str) -> None:
        assignment = TopicAssignment(topic, f"id-{topic}", dict(enumerate(replicas)), configs, version=0)
        self.topics[topic] = assignment
        self.play(self.controller.topics_created([assignment]))

    def come(self, *registrations: BrokerRegistration) -> None:
        self.live |= {registration.broker_id: registration for registration in registrations}
        self.play(self.controller.brokers_changed(self.live))

    def die(self, *broker_ids: int) -> None:
        self.live = {b: registration for b, registration in self.live.items() if b not in broker_ids}
        self.play(self.controller.brokers_changed(self.live))

    def leader_writes_isr(self, tp: TopicPartition, *isr: int) -> None:
        known = self.states[tp]
        self.states[tp] = VersionedState(replace(known.state, isr=isr, eligible=()), known.partition_epoch + 1)

    def leader_changes_isr(self, tp: TopicPartition, *isr: int) -> None:
        self.leader_writes_isr(tp, *isr)
        self.play(self.controller.states_read({tp: self.states[tp]}, self.context.ids_of({tp.topic})))

    def state(self, tp: TopicPartition = TP) -> PartitionState:
        return self.states[tp].state

    def sent_holders(self, tp: TopicPartition = TP) -> set[int]:
        """Return the holders of the partition as last sent to all brokers."""
        return set(self.sent[tp])

    def news(self) -> list[str]:
        news, self.log = self.log, []
        return news

"""The facts that a controller knows: live brokers, assignments, and the last known state of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.controller.effects import Effect, SendLeaderAndIsr, SendStopReplica
from cluster.controller.reassignment import ReassignmentProgress
from cluster.state import BrokerRegistration, TopicAssignment, VersionedState
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import (
    ANY_EPOCH,
    BrokerInfo,
    ListenerAddress,
    PartitionStateMessage,
    StopReplicaPartition,
    TopicInfo,
)


class ControllerContext:
    """The controller's knowledge of the cluster (Kafka: ControllerContext). Only `Controller` changes it.

    brokers             live brokers that are online, by id
    shutting_down       those of them in a controlled shutdown
    offline             replicas on a failed disk, by broker
    replicas_with_loss  replicas that have lost committed records, by broker; never in sync, whatever the state says
    unclean_epochs      the leader epochs in which such a replica leads after an unclean election
    topics              all assignments
    unreadable_topics   names of topics whose assignments, or some of whose states, cannot be read
    states              the last known state of each partition that has one
    reassignments       the partitions that are being reassigned
    hosted              the partitions of which a broker may have a log
    """

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerRegistration] = {}
        self.shutting_down: set[int] = set()
        self.offline: dict[int, set[TopicPartition]] = {}
        self.replicas_with_loss: dict[int, set[TopicPartition]] = {}
        self.unclean_epochs: dict[TopicPartition, int] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.unreadable_topics: set[str] = set()
        self.states: dict[TopicPartition, VersionedState] = {}
        self.reassignments: dict[TopicPartition, ReassignmentProgress] = {}
        self.hosted: dict[int, set[TopicPartition]] = {}

    def led_by(self, broker_id: int) -> list[TopicPartition]:
        """Return the partitions that a broker leads, by the last known states."""
        hosted = self.hosted.get(broker_id, ())
        return sorted(tp for tp in hosted if tp in self.states and self.states[tp].state.leader == broker_id)

    def replicas(self, tp: TopicPartition) -> tuple[int, ...]:
        """Return the replicas of a partition, without those that a reassignment has removed."""
        assigned = self.topics[tp.topic].assigned(tp.partition)
        move = self.reassignments.get(tp)
        return assigned.target if move is not None and move.removed else assigned.replicas

    def holders(self, tp: TopicPartition) -> tuple[int, ...]:
        """Return the brokers that may have a log of the partition.

        Replicas that a reassignment removes are included until they are requested to delete their logs.
        """
        assigned = self.topics[tp.topic].assigned(tp.partition)
        move = self.reassignments.get(tp)
        return assigned.target if move is not None and move.confirmed else assigned.replicas

    def setting(self, tp: TopicPartition, name: str, default: str) -> str:
        """Return a setting of the partition's topic, or the default."""
        return self.topics[tp.topic].configs.get(name, default)

    def online(self, tp: TopicPartition) -> set[int]:
        """Return the live brokers, except those that have reported the partition as offline."""
        return {broker_id for broker_id in self.brokers if tp not in self.offline.get(broker_id, ())}

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions of all topics, in order."""
        return [tp for _, assignment in sorted(self.topics.items()) for tp in assignment.topic_partitions()]

    def assigned_to(self, broker_id: int, topic: str) -> list[TopicPartition]:
        """Return the topic's partitions of which a broker may have a replica, including replicas being removed."""
        assignment = self.topics[topic]
        return [tp for tp in assignment.topic_partitions() if broker_id in assignment.partitions[tp.partition]]

    # --- requests to brokers -------------------------------------------------------------------------

    def leader_and_isr(
        self, states: Mapping[TopicPartition, VersionedState], broker_ids: Iterable[int]
    ) -> list[Effect]:
        """Return LeaderAndIsr requests that send each of these brokers the states of its own replicas."""
        effects: list[Effect] = []
        for broker_id in broker_ids:
            hosted = self.hosted.get(broker_id, set())
            mine = {tp: state for tp, state in states.items() if tp in hosted and broker_id in self.replicas(tp)}
            if mine:
                effects.append(SendLeaderAndIsr(broker_id, self.messages(mine)))
        return effects

    def stop_replicas(
        self, broker_id: int, tps: Iterable[TopicPartition], *, in_any_epoch: bool = False, delete: bool = True
    ) -> list[Effect]:
        """Return a StopReplica request that stops a broker's replicas of these partitions, and deletes them if
        `delete`.

        `in_any_epoch`: also if the broker knows a later leader epoch than this controller.
        """
        epochs = {tp: self.states[tp].state.leader_epoch if tp in self.states else 0 for tp in tps}
        partitions = tuple(
            StopReplicaPartition(tp.topic, tp.partition, ANY_EPOCH if in_any_epoch else epoch, delete)
            for tp, epoch in epochs.items()
        )
        return [SendStopReplica(broker_id, partitions)] if partitions else []

    @property
    def topic_ids(self) -> dict[str, str]:
        """Return the topic ids by name, including topics that are being deleted."""
        return {name: topic.topic_id for name, topic in self.topics.items()}

    # --- conversion to messages -----------------------------------------------------------------------

    def live_brokers(self) -> tuple[BrokerInfo, ...]:
        """Return the live brokers in the form of the messages."""
        return tuple(
            BrokerInfo(
                b.broker_id,
                b.epoch,
                tuple(ListenerAddress(name, at.host, at.port) for name, at in sorted(b.listeners.items())),
                id_ in self.shutting_down,
            )
            for id_, b in sorted(self.brokers.items())
        )

    def topic_infos(self, topics: Iterable[str]) -> tuple[TopicInfo, ...]:
        """Return id, settings and partition count of those topics that exist."""
        known = (self.topics[topic] for topic in sorted(set(topics)) if topic in self.topics)
        return tuple(
            TopicInfo(topic.topic, topic.topic_id, dict(topic.configs), len(topic.partitions)) for topic in known
        )

    def messages(self, states: Mapping[TopicPartition, VersionedState]) -> tuple[PartitionStateMessage, ...]:
        """Return the states in the form of the messages.

        A broker that is neither a replica nor being removed sets aside any log of the partition.
        """
        return tuple(self._message(tp, known) for tp, known in sorted(states.items()))

    def _message(self, tp: TopicPartition, known: VersionedState) -> PartitionStateMessage:
        state, replicas = known.state, self.replicas(tp)
        return PartitionStateMessage(
            topic=tp.topic,
            partition=tp.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=known.partition_epoch,
            replicas=replicas,
            unclean=self.unclean_epochs.get(tp) == state.leader_epoch,
            leaving=tuple(broker_id for broker_id in self.holders(tp) if broker_id not in replicas),
        )

    # --- changing ------------------------------------------------------------------------------------

    def host(self, tp: TopicPartition) -> None:
        """Update `hosted`, which says whose failures and registrations concern the partition."""
        holders = self.holders(tp)
        for broker_id in holders:
            self.hosted.setdefault(broker_id, set()).add(tp)
        for broker_id, hosted in self.hosted.items():
            if broker_id not in holders:
                hosted.discard(tp)

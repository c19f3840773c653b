"""What a controller knows: live brokers, assignments, and the last seen state of each partition."""

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
    """To be read by anybody, and changed by its `Controller` alone.

    brokers   live and admitted ones, by id
    leaving   those of them in a controlled shutdown
    offline   replicas below which the disk has failed, by broker
    lacking   replicas that have lost what was committed, by broker: not in sync, whatever the state says
    forced    the leader epochs in which one of those leads all the same
    topics    all assignments
    unread    names of topics whose assignments, or some of whose states, cannot be read
    states    the last seen state of each partition that has one
    moves     the partitions that are being reassigned
    hosted    the partitions of which a broker may have a log
    """

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerRegistration] = {}
        self.leaving: set[int] = set()
        self.offline: dict[int, set[TopicPartition]] = {}
        self.lacking: dict[int, set[TopicPartition]] = {}
        self.forced: dict[TopicPartition, int] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.unread: set[str] = set()
        self.states: dict[TopicPartition, VersionedState] = {}
        self.moves: dict[TopicPartition, ReassignmentProgress] = {}
        self.hosted: dict[int, set[TopicPartition]] = {}

    def led_by(self, broker_id: int) -> list[TopicPartition]:
        """What a broker leads, as far as is known."""
        hosted = self.hosted.get(broker_id, ())
        return sorted(tp for tp in hosted if tp in self.states and self.states[tp].state.leader == broker_id)

    def replicas(self, tp: TopicPartition) -> tuple[int, ...]:
        """Everybody who counts; of a reassignment that has shed, those who stay."""
        assigned = self.topics[tp.topic].assigned(tp.partition)
        move = self.moves.get(tp)
        return assigned.target if move is not None and move.shed else assigned.replicas

    def holders(self, tp: TopicPartition) -> tuple[int, ...]:
        """Everybody who may have a log of it; of a reassignment those who go, too, until they are to delete theirs."""
        assigned = self.topics[tp.topic].assigned(tp.partition)
        move = self.moves.get(tp)
        return assigned.target if move is not None and move.safe else assigned.replicas

    def setting(self, tp: TopicPartition, name: str, default: str) -> str:
        """A setting of the partition's topic."""
        return self.topics[tp.topic].configs.get(name, default)

    def online(self, tp: TopicPartition) -> set[int]:
        """The live brokers but those that have said that they cannot serve this partition."""
        return {broker_id for broker_id in self.brokers if tp not in self.offline.get(broker_id, ())}

    def partitions(self) -> list[TopicPartition]:
        """All partitions of all topics, in order."""
        return [tp for _, assignment in sorted(self.topics.items()) for tp in assignment.topic_partitions()]

    def assigned_to(self, broker_id: int, topic: str) -> list[TopicPartition]:
        """All of which it may have a replica, be it on its way out."""
        assignment = self.topics[topic]
        return [tp for tp in assignment.topic_partitions() if broker_id in assignment.partitions[tp.partition]]

    # --- telling -------------------------------------------------------------------------------------

    def leader_and_isr(
        self, states: Mapping[TopicPartition, VersionedState], broker_ids: Iterable[int]
    ) -> list[Effect]:
        """These brokers are told what of these states concerns them."""
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
        """This broker is to stop its replicas of these, and to delete them with `delete`.

        `in_any_epoch`: also if it knows a later one than we.
        """
        epochs = {tp: self.states[tp].state.leader_epoch if tp in self.states else 0 for tp in tps}
        partitions = tuple(
            StopReplicaPartition(tp.topic, tp.partition, ANY_EPOCH if in_any_epoch else epoch, delete)
            for tp, epoch in epochs.items()
        )
        return [SendStopReplica(broker_id, partitions)] if partitions else []

    @property
    def topic_ids(self) -> dict[str, str]:
        """By the topics' names, also of those that are on their way out."""
        return {name: topic.topic_id for name, topic in self.topics.items()}

    # --- in the messages' form ------------------------------------------------------------------------

    def live_brokers(self) -> tuple[BrokerInfo, ...]:
        """The live brokers in the messages' form."""
        return tuple(
            BrokerInfo(
                b.broker_id,
                b.epoch,
                tuple(ListenerAddress(name, at.host, at.port) for name, at in sorted(b.listeners.items())),
                id_ in self.leaving,
            )
            for id_, b in sorted(self.brokers.items())
        )

    def topic_infos(self, topics: Iterable[str]) -> tuple[TopicInfo, ...]:
        """Identity, settings and size of those topics that exist."""
        known = (self.topics[topic] for topic in sorted(set(topics)) if topic in self.topics)
        return tuple(
            TopicInfo(topic.topic, topic.topic_id, dict(topic.configs), len(topic.partitions)) for topic in known
        )

    def messages(self, states: Mapping[TopicPartition, VersionedState]) -> tuple[PartitionStateMessage, ...]:
        """What to tell of these states. Who is neither a replica nor leaving sets aside what it has of them."""
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
            unclean=self.forced.get(tp) == state.leader_epoch,
            leaving=tuple(broker_id for broker_id in self.holders(tp) if broker_id not in replicas),
        )

    # --- changing ------------------------------------------------------------------------------------

    def host(self, tp: TopicPartition) -> None:
        """Whose comings and goings matter to it."""
        holders = self.holders(tp)
        for broker_id in holders:
            self.hosted.setdefault(broker_id, set()).add(tp)
        for broker_id, hosted in self.hosted.items():
            if broker_id not in holders:
                hosted.discard(tp)

"""What a controller knows: live brokers, assignments, and the last seen state of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.reassignment import Move
from cluster.state import BrokerRegistration, TopicAssignment, VersionedState
from tidelog.control_messages import BrokerInfo, ListenerAddress, PartitionStateMessage, TopicInfo
from tidelog.model import TopicPartition


class Picture:
    """To be read by anybody, and changed by its `Controller` alone.

    brokers   live and admitted ones, by id
    leaving   those of them in a controlled shutdown
    offline   replicas below which the disk has failed, by broker
    topics    all assignments
    states    the last seen state of each partition that has one
    moves     the partitions that are being reassigned
    hosted    the partitions of which a broker has a replica that counts
    """

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerRegistration] = {}
        self.leaving: set[int] = set()
        self.offline: dict[int, set[TopicPartition]] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, VersionedState] = {}
        self.moves: dict[TopicPartition, Move] = {}
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

    def setting(self, tp: TopicPartition, name: str, default: str) -> str:
        """A setting of the partition's topic."""
        return self.topics[tp.topic].configs.get(name, default)

    def online(self, tp: TopicPartition) -> set[int]:
        """The live brokers but those that have said that they cannot serve this partition."""
        return {broker_id for broker_id in self.brokers if tp not in self.offline.get(broker_id, ())}

    def partitions(self) -> list[TopicPartition]:
        """All partitions of all topics, in order."""
        return [tp for _, assignment in sorted(self.topics.items()) for tp in assignment.topic_partitions()]

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
        """Identity and settings of those topics that exist."""
        known = (self.topics[topic] for topic in sorted(set(topics)) if topic in self.topics)
        return tuple(TopicInfo(topic.topic, topic.topic_id, dict(topic.configs)) for topic in known)

    def messages(self, states: Mapping[TopicPartition, VersionedState]) -> tuple[PartitionStateMessage, ...]:
        """What to tell of these states."""
        return tuple(self._message(tp, known) for tp, known in sorted(states.items()))

    def _message(self, tp: TopicPartition, known: VersionedState) -> PartitionStateMessage:
        state = known.state
        return PartitionStateMessage(
            topic=tp.topic,
            partition=tp.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=known.partition_epoch,
            replicas=self.replicas(tp),
        )

    # --- changing ------------------------------------------------------------------------------------

    def host(self, tp: TopicPartition) -> None:
        """Who has a replica, and has to be told of it."""
        replicas = self.replicas(tp)
        for broker_id in replicas:
            self.hosted.setdefault(broker_id, set()).add(tp)
        for broker_id, hosted in self.hosted.items():
            if broker_id not in replicas:
                hosted.discard(tp)

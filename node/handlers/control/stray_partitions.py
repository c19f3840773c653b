"""Find the stray partitions of a broker: replicas of deleted topics, and of partitions that other brokers have now.

The controller sends StopReplica to each registered broker and waits for the answer. A broker that was down or paused,
or was still opening its logs, gets no StopReplica, and the controller that wanted to send it may have failed since. So
a broker compares its replicas with each full UpdateMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node.replication.replica_manager import ReplicaManager
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import BrokerInfo, LeaderAndIsrRequest, UpdateMetadataRequest


class StrayPartitions:
    """For each replica, the registration of this broker under which a controller last sent LeaderAndIsr for it."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._broker_id = replicas.broker_id
        self._registrations: dict[TopicPartition, int] = {}

    def note(self, request: LeaderAndIsrRequest) -> None:
        """Record that the controller has assigned the request's partitions to this broker.

        The record names the registration that this broker has among the request's live brokers (−1: none).
        """
        tps = (TopicPartition(each.topic, each.partition) for each in request.partitions)
        self._registrations |= dict.fromkeys(tps, self._registration_among(request.live_brokers))

    def forget(self, tp: TopicPartition) -> None:
        """Drop the record of a partition of which this broker has no replica any more."""
        self._registrations.pop(tp, None)

    def find(self, update: UpdateMetadataRequest) -> list[TopicPartition]:
        """Return the partitions that this broker must set aside.

        A. Other brokers are the replicas now, and this broker still has a replica, or an open log.
        B. The topic is not among all topics of the cluster (`_of_deleted_topics`).
        """
        # A deposed controller does not know what later controllers have done. Logs from before this broker's restart
        # may come from a later controller's decision.
        deposed = update.controller_epoch < self._replicas.controller_epoch
        elsewhere = {
            TopicPartition(state.topic, state.partition): state.leader_epoch
            for state in update.partitions
            if self._broker_id not in (*state.replicas, *state.leaving)
        }
        kept = [tp for tp, epoch in elsewhere.items() if self._still_has(tp, epoch, deposed=deposed)]  # A
        if update.every_topic is None or deposed:
            return kept
        return list(dict.fromkeys(kept + self._of_deleted_topics(update.every_topic, update.live_brokers)))  # B

    def _still_has(self, tp: TopicPartition, leader_epoch: int, *, deposed: bool) -> bool:
        """Return whether this broker has a replica, or an open log, of a partition that only others have in this epoch.

        A log without a replica belongs to a partition that no controller has assigned to this broker since its start.
        """
        replica = self._replicas.get(tp)
        if replica is None:
            return not deposed and self._replicas.log_of(tp) is not None
        # A replica is added to a partition only in a new leader epoch, so a state of the same epoch is no older.
        # The StopReplica request may have carried an earlier epoch than this replica knew, and was refused then.
        return leader_epoch >= replica.partition.leader_epoch

    def _of_deleted_topics(self, topics: Mapping[str, str], live_brokers: Iterable[BrokerInfo]) -> list[TopicPartition]:
        """Return the partitions of this broker whose topic id is not among all `topics` of the cluster.

        Partitions that were assigned under the current registration are never strays. The controller would send
        StopReplica for them, and the metadata may have been sent before they were assigned.
        """
        registration, held = self._registration_among(live_brokers), self._replicas.topic_ids()
        older = ((tp, id_) for tp, id_ in held.items() if self._registrations.get(tp, -1) < registration)
        return [tp for tp, id_ in older if _is_gone(id_, topics.get(tp.topic))]

    def _registration_among(self, live_brokers: Iterable[BrokerInfo]) -> int:
        """Return this broker's registration among the live brokers, or −1."""
        return next((broker.epoch for broker in live_brokers if broker.broker_id == self._broker_id), -1)


def _is_gone(topic_id: str, current_id: str | None) -> bool:
    """Return whether no topic has the name now, or a topic with another id. An unknown id counts as the same."""
    return current_id is None or bool(topic_id and current_id and topic_id != current_id)

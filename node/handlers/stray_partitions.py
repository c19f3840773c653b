"""Find the stray partitions of a broker: replicas of topics that the cluster has deleted.

The controller sends StopReplica to each registered broker and waits for the answer. A broker that was paused, or was
still opening its logs, gets no StopReplica. Such a broker compares its replicas with the topics in a full
UpdateMetadata instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import BrokerInfo, LeaderAndIsrRequest


class StrayPartitions:
    """For each replica, the registration of this broker under which a controller last sent LeaderAndIsr for it."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._registrations: dict[TopicPartition, int] = {}

    def note(self, request: LeaderAndIsrRequest) -> None:
        """Record the replicas that the controller has assigned to this broker."""
        tps = (TopicPartition(each.topic, each.partition) for each in request.partitions)
        self._registrations |= dict.fromkeys(tps, self._registration_among(request.live_brokers))

    def forget(self, tp: TopicPartition) -> None:
        """Drop the record of a partition of which this broker has no replica any more."""
        self._registrations.pop(tp, None)

    def find_strays(
        self, topics: Mapping[str, str], live_brokers: Iterable[BrokerInfo], held: Mapping[TopicPartition, str]
    ) -> list[TopicPartition]:
        """Return the `held` partitions whose topic id is not among all `topics` of the cluster.

        Partitions that were assigned under the current registration are never strays. The controller would send
        StopReplica for them, and the metadata may have been sent before they were assigned.
        """
        registration = self._registration_among(live_brokers)
        older = ((tp, id_) for tp, id_ in held.items() if self._registrations.get(tp, -1) < registration)
        return [tp for tp, id_ in older if _is_gone(id_, topics.get(tp.topic))]

    def _registration_among(self, live_brokers: Iterable[BrokerInfo]) -> int:
        """Return this broker's registration among the live brokers, or −1."""
        return next((broker.epoch for broker in live_brokers if broker.broker_id == self._broker_id), -1)


def _is_gone(topic_id: str, current_id: str | None) -> bool:
    """Return whether no topic has the name now, or a topic with another id. An unknown id counts as the same."""
    return current_id is None or bool(topic_id and current_id and topic_id != current_id)

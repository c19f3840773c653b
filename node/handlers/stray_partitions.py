"""Which of a broker's partitions are of topics that are gone, by what the controller says of all topics there are.

Who is registered is told to delete its replica, and waited for. Who was away is not: its process may have slept, or
was still opening its logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import BrokerInfo, LeaderAndIsrRequest


class StrayPartitions:
    """Under which of this broker's registrations a controller last said that it has a replica."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._registrations: dict[TopicPartition, int] = {}

    def note(self, request: LeaderAndIsrRequest) -> None:
        """It has these replicas."""
        tps = (TopicPartition(each.topic, each.partition) for each in request.partitions)
        self._registrations |= dict.fromkeys(tps, self._registration_among(request.live_brokers))

    def forget(self, tp: TopicPartition) -> None:
        """It has it no more."""
        self._registrations.pop(tp, None)

    def gone(
        self, topics: Mapping[str, str], live_brokers: Iterable[BrokerInfo], held: Mapping[TopicPartition, str]
    ) -> list[TopicPartition]:
        """Those of the partitions that it holds, with the ids of their topics, that are of none of all these topics.

        Not those that it was told of since it is registered: of their end it would be told too, and what is said here
        may have been on its way when they came.
        """
        registration = self._registration_among(live_brokers)
        untold = ((tp, id_) for tp, id_ in held.items() if self._registrations.get(tp, -1) < registration)
        return [tp for tp, id_ in untold if _is_another(id_, topics.get(tp.topic))]

    def _registration_among(self, live_brokers: Iterable[BrokerInfo]) -> int:
        """Its own, as the controller has it; −1: it has none."""
        return next((broker.epoch for broker in live_brokers if broker.broker_id == self._broker_id), -1)


def _is_another(topic_id: str, now: str | None) -> bool:
    """None has the name now, or one whose id is another; where an id is not known, that cannot be said."""
    return now is None or bool(topic_id and now and topic_id != now)

"""Ask the leaders of partitions for the offsets that a description shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.offset_lookup import Ends, find_ends
from tidelog.client.leader_requests import Asked, PerLeaderRequest
from tidelog.errors import BrokerError, UnsupportedVersionError, error_for
from tidelog.model import TopicPartition
from tidelog.protocol.messages import (
    DescribePartition,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    ReplicasDescription,
    Response,
)


class LeaderAnswers(NamedTuple):
    """The answers of the leaders.

    replicas   what a leader knows of the replicas
    ends       the readable offsets of partitions whose leader is a broker of Kafka, which has no such request
    """

    replicas: dict[TopicPartition, ReplicasDescription]
    ends: dict[TopicPartition, Ends]


async def ask_leaders(client: ClusterClient, partitions: Collection[TopicPartition], timeout_ms: int) -> LeaderAnswers:
    """Return the answers of the leaders that answer within `timeout_ms`, or twice that for brokers of Kafka."""
    outcomes = await _DESCRIBE_REPLICAS.try_ask(client, dict.fromkeys(partitions), timeout_ms)
    without = [tp for tp, error in outcomes.refused.items() if isinstance(error, UnsupportedVersionError)]
    ends, _ = await find_ends(client, without, timeout_ms)
    return LeaderAnswers(outcomes.answers, ends)


def _make_request(asked: Asked[None]) -> DescribeReplicasRequest:
    return DescribeReplicasRequest(tuple(DescribePartition(*tp) for tp, _, _ in asked))


def _read(response: Response) -> Iterable[tuple[TopicPartition, BrokerError | None, ReplicasDescription]]:
    assert isinstance(response, DescribeReplicasResponse)
    for each in response.partitions:
        yield TopicPartition(each.topic, each.partition), error_for(each.error_code), each


_DESCRIBE_REPLICAS: PerLeaderRequest[None, ReplicasDescription] = PerLeaderRequest(
    "describe replicas", _make_request, _read
)

"""DescribeReplicas: return the offsets and the ISR of a partition, which only its leader knows."""

from __future__ import annotations

from node.replication.replica_manager import ReplicaManager
from tidelog.errors import BrokerError
from tidelog.model import TopicPartition
from tidelog.protocol.messages import (
    DescribePartition,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    ReplicasDescription,
)


def describe_replicas(replicas: ReplicaManager, request: DescribeReplicasRequest) -> DescribeReplicasResponse:
    """Return each partition's offsets and ISR, or an error such as NOT_LEADER_OR_FOLLOWER, in the given order.

    A follower has the log end offset −1 while it has not fetched in this leader epoch, or not since it registered again
    or another broker removed it from the ISR.
    """
    return DescribeReplicasResponse(tuple(_describe(replicas, part) for part in request.partitions))


def _describe(replicas: ReplicaManager, part: DescribePartition) -> ReplicasDescription:
    try:
        replica = replicas.get_or_raise(TopicPartition(part.topic, part.partition)).leader_or_raise()
    except BrokerError as error:
        return ReplicasDescription(part.topic, part.partition, error.code)
    log, partition = replica.log, replica.partition
    ends = {follower: state.log_end_offset for follower, state in partition.followers.items()}
    ends[replicas.broker_id] = log.log_end_offset
    return ReplicasDescription(
        part.topic,
        part.partition,
        0,
        partition.leader_epoch,
        log.log_start_offset,
        partition.high_watermark,
        log.log_end_offset,
        partition.isr,
        dict(sorted(ends.items())),
    )

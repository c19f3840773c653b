"""What an admin tells of a cluster: values, and how a partition's description is put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.model import Endpoint
from tidelog.protocol.messages import PartitionMetadata, ReplicasDescription


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition. What only its leader knows is None while no leader answers.

    lag   records that each follower is behind the leader; None for one that the leader has not heard of in its epoch
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    log_start_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    lag: Mapping[int, int | None] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic, its partitions in order."""

    topic: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster: `brokers` are the live ones by id, `controller` is −1 while there is none."""

    cluster_id: str
    controller: int
    brokers: Mapping[int, Endpoint]


def describe_partition(known: PartitionMetadata, told: ReplicasDescription | None) -> PartitionDescription:
    """What metadata has, and what the leader adds; the leader's word counts where both speak."""
    if told is None:
        return PartitionDescription(
            known.partition, known.leader, known.leader_epoch, known.replicas, known.isr, known.offline_replicas
        )
    ends = told.log_end_offsets or {}
    lag = {
        replica: max(0, told.log_end_offset - ends[replica]) if ends.get(replica, -1) >= 0 else None
        for replica in known.replicas
        if replica != known.leader
    }
    return PartitionDescription(
        known.partition,
        known.leader,
        max(known.leader_epoch, told.leader_epoch),
        known.replicas,
        told.isr or known.isr,
        known.offline_replicas,
        told.log_start_offset,
        told.high_watermark,
        told.log_end_offset,
        lag,
    )

"""Finds the coordinator of a group, as brokers and ZooKeeper report it."""

from __future__ import annotations

from tests.processes.harness.asking import ask
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.waiting import wait_bitten, wait_for
from tidelog import TopicPartition
from tidelog.errors import TidelogError
from tidelog.groups.offsets_topic import OFFSETS_TOPIC, partition_for
from tidelog.protocol.group_messages import FindCoordinatorRequest, FindCoordinatorResponse

OFFSETS_PARTITIONS = 50


def offsets_partition(group: str, partitions: int = OFFSETS_PARTITIONS) -> TopicPartition:
    """The partition that keeps the group."""
    return TopicPartition(OFFSETS_TOPIC, partition_for(group, partitions))


def reported_coordinator(cluster: RunningCluster, group: str, *, by: int) -> int | None:
    """Return the coordinator of the group according to this broker; None if it reports none, or does not answer."""
    try:
        answer = ask(cluster.address(by), FindCoordinatorRequest((group,)), timeout_ms=2_000)
    except TidelogError:
        return None
    assert isinstance(answer, FindCoordinatorResponse)
    return answer.coordinators[0].broker_id if answer.coordinators[0].error_code == 0 else None


def coordinator(cluster: RunningCluster, group: str, others_than: int | None = None) -> int:
    """Return the coordinator of the group according to any other broker."""

    def shown() -> int | None:
        for broker_id in cluster.broker_ids:
            if broker_id != others_than and (found := reported_coordinator(cluster, group, by=broker_id)) is not None:
                return found
        return None

    return wait_for(f"a coordinator of {group}", shown)


def wait_moved(cluster: RunningCluster, group: str, away_from: int) -> int:
    """Return the coordinator once the other brokers report a new one. Raise Void if they never do."""

    def moved() -> int | None:
        found = coordinator(cluster, group, others_than=away_from)
        return found if found != away_from else None

    return wait_bitten(f"a coordinator of {group} other than broker {away_from}", moved)


def wait_offsets_topic(cluster: RunningCluster, group: str) -> TopicPartition:
    """Returns the group's partition of the offsets topic when all its replicas are in sync; asks for it if need be."""
    coordinator(cluster, group)
    tp = offsets_partition(group)
    cluster.wait_in_sync(tp)
    return tp

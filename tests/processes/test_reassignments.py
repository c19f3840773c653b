"""Partitions that move to other brokers under load, also while those that move them are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.zookeeper import znodes
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.waiting import require_bite, wait_for
from tidelog import NewTopic, TopicPartition

pytestmark = pytest.mark.slow

TPS = [TopicPartition("t", partition) for partition in range(3)]
ADDED = 4
BEFORE, AFTER = (1, 2, 3), (ADDED, 2, 3)


@pytest.fixture
def four(tmp_path: Path) -> Iterator[RunningCluster]:
    """Four brokers, one of which has nothing yet, and is not the controller."""
    with running_cluster(tmp_path, brokers=4) as cluster:
        topic = NewTopic("t", assignment={tp.partition: BEFORE for tp in TPS}, configs={"min.insync.replicas": "2"})
        cluster.admin.create_topics([topic])
        for tp in TPS:
            cluster.wait_in_sync(tp)
        if cluster.controller() == ADDED:
            epoch = cluster.broker_epoch(ADDED)
            cluster.kill(ADDED)
            cluster.restart(ADDED)
            cluster.wait_serves(ADDED, since=epoch)
        yield cluster


def move(cluster: RunningCluster) -> None:
    cluster.admin.alter_partition_reassignments({tp: AFTER for tp in TPS})


def unfinished(cluster: RunningCluster) -> list[int]:
    """The partitions that ZooKeeper has as on their way."""
    with cluster.zookeeper() as client:
        topic = znodes.decode_topic("t", client.get(znodes.topic_path("t"))[0], {})
    return sorted({*topic.adding, *topic.removing})


def wait_moved(cluster: RunningCluster) -> None:
    wait_for("the reassignments to end", lambda: not cluster.admin.list_partition_reassignments(), 90)
    for tp in TPS:
        wait_for(f"{tp} to be where it belongs", lambda tp=tp: set(cluster.znode(tp).state.isr) == set(AFTER))  # type: ignore[misc]
        gone = cluster.local.broker_dir(1) / str(tp)
        wait_for(f"{tp} to be removed where it was", lambda gone=gone: not gone.exists())  # type: ignore[misc]


def test_partitions_move_under_load(four: RunningCluster) -> None:
    with ordeal(four, TPS) as under:
        move(four)
        wait_moved(four)
        under.workload.wait_acknowledged(100)


@pytest.mark.parametrize("victim", ["the controller", "the broker that is added", "the broker that leaves"])
def test_partitions_move_although_a_broker_is_killed_meanwhile(four: RunningCluster, victim: str) -> None:
    brokers = {"the controller": four.controller(), "the broker that is added": ADDED, "the broker that leaves": 1}
    broker_id = brokers[victim]
    with ordeal(four, TPS) as under:
        under.workload.wait_acknowledged(2000)
        epoch = four.broker_epoch(broker_id)
        with four.paused(ADDED):  # the moves cannot end before the kill
            move(four)
            four.kill(broker_id)
            require_bite("it died too late, all had moved", (left := unfinished(four)) and f"{len(left)} still to move")
        under.workload.wait_acknowledged(100)
        four.restart(broker_id)
        four.wait_serves(broker_id, since=epoch)
        wait_moved(four)

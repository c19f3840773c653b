"""Real brokers whose partitions become more, get other leaders and move to other brokers, under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.state import TopicAssignment
from cluster.zookeeper import znodes
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.replica_files import assert_replicas_identical
from tests.processes.harness.waiting import require_bite, wait_for
from tests.processes.harness.workload import Workload
from tidelog import ElectionType, NewPartitions, TopicPartition
from tidelog.errors import ElectionNotNeededError, InvalidPartitionsError, InvalidReplicaAssignmentError

pytestmark = pytest.mark.slow


@pytest.fixture
def four(tmp_path: Path) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path, brokers=4) as started:
        yield started


def assignment(cluster: RunningCluster, topic: str) -> TopicAssignment:
    with cluster.zookeeper() as client:
        return znodes.decode_topic(topic, client.get(znodes.topic_path(topic))[0], {})


def wait_settled(cluster: RunningCluster, tps: list[TopicPartition]) -> None:
    wait_for("the reassignments to end", lambda: not cluster.admin.list_partition_reassignments(tps))


def hosts(cluster: RunningCluster, tp: TopicPartition) -> set[int]:
    return {b for b in cluster.broker_ids if (cluster.local.broker_dir(b) / str(tp)).exists()}


def test_topic_is_extended_moved_and_rebalanced_under_load(four: RunningCluster) -> None:
    admin = four.admin
    (first,) = four.create_topic("t")
    with Workload(four.bootstrap_servers, [first]) as workload:
        admin.create_partitions([NewPartitions("t", 3)])
        with pytest.raises(InvalidPartitionsError, match="already has 3 partitions"):
            admin.create_partitions([NewPartitions("t", 2)])
        tps = [TopicPartition("t", number) for number in range(3)]
        assert sorted(assignment(four, "t").partitions) == [0, 1, 2]

        before = assignment(four, "t").partitions
        (outsider,) = set(four.broker_ids) - set(before[0])
        target = (outsider, *before[0][1:])
        with pytest.raises(InvalidReplicaAssignmentError, match="not alive"):
            admin.alter_partition_reassignments({first: (1, 2, 99)})
        admin.alter_partition_reassignments({first: target})
        wait_settled(four, tps)
        moved = assignment(four, "t")
        assert moved.partitions[0] == target and not moved.adding and not moved.removing
        wait_for("its log to go where it is no longer", lambda: hosts(four, first) == set(target))
        assert set(four.znode(first).state.isr) == set(target)

        assert admin.elect_leaders(ElectionType.PREFERRED, [first])[first] is None or four.leader(first) == outsider
        assert four.leader(first) == outsider
        assert isinstance(admin.elect_leaders(ElectionType.PREFERRED, [first])[first], ElectionNotNeededError)
        workload.wait_acknowledged(100)
    assert workload.check(four.bootstrap_servers) > 100
    assert_replicas_identical(four, [first])


@pytest.mark.slow
def test_reassignment_continues_after_a_broker_is_killed(four: RunningCluster) -> None:
    tps = four.create_topic("t", partitions=4)
    targets = {
        tp: tuple(sorted(set(four.broker_ids) - {replicas[0]}))
        for tp, replicas in ((tp, assignment(four, "t").partitions[tp.partition]) for tp in tps)
    }
    underway = 0
    with Workload(four.bootstrap_servers, tps) as workload:
        for _ in range(3):
            victim = four.controller()
            epoch = four.broker_epoch(victim)
            four.admin.alter_partition_reassignments(targets)
            four.kill(victim)
            underway += len(assignment(four, "t").adding)
            workload.wait_acknowledged(100)
            four.restart(victim)
            four.wait_serves(victim, since=epoch)
            wait_settled(four, tps)
            for tp in tps:
                four.wait_in_sync(tp)
                assert set(assignment(four, "t").partitions[tp.partition]) == set(targets[tp])
            targets = {tp: tuple(sorted(set(four.broker_ids) - {replicas[0]})) for tp, replicas in targets.items()}
        workload.wait_acknowledged(100)
    require_bite("the controllers died too late, all had moved", underway and f"{underway} on their way")
    assert workload.check(four.bootstrap_servers) > 300
    assert_replicas_identical(four, tps)

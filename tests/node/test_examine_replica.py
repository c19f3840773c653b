"""The report of a broker about one replica, in each role."""

from __future__ import annotations

import pytest

from node.handlers.inspection.examine_replica import ReplicaExaminations
from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import UnknownTopicOrPartitionError
from tidelog.protocol.operator_messages import ExamineReplicaRequest, ReplicaReport


async def examined(cluster: MemoryCluster, broker_id: int) -> ReplicaReport:
    answer = await ReplicaExaminations(cluster.nodes[broker_id].replicas, 300_000).examine(ExamineReplicaRequest(*TP))
    assert answer.error_code == 0 and answer.replica is not None
    return answer.replica


@on_virtual_time
async def test_leader_reports_the_state_of_each_follower() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await until(lambda: cluster.nodes[3].replica().partition.high_watermark == 1)
        cluster.cut(1, 3)
        await cluster.produce(b"b", acks=1)
        await until(lambda: cluster.nodes[1].replica().partition.followers[2].log_end_offset == 2)
        report = await examined(cluster, 1)
        assert (report.role, report.leader, report.leader_epoch, report.isr) == ("leader", 1, 0, (1, 2, 3))
        assert (report.high_watermark, report.log_end_offset, report.synced_end, report.min_insync_replicas) == (
            1,
            2,
            -1,
            2,
        )
        near, far = report.followers
        assert (near.broker_id, near.log_end_offset, near.registered) == (2, 2, True)
        assert (far.broker_id, far.log_end_offset) == (3, 1)
        await until(lambda: len(cluster.nodes[1].replica().partition.isr) == 2)
        assert (await examined(cluster, 1)).followers[1].caught_up_ago_ms >= cluster.max_lag_ms
        await cluster.kill(3)
        await cluster.send_state([1])
        assert [each.registered for each in (await examined(cluster, 1)).followers] == [True, False]
        assert report.retention is not None and report.retention.oldest is not None
        assert (report.retention.segments, report.retention.oldest.end_offset) == (1, 2)


@on_virtual_time
async def test_follower_reports_its_leader_even_with_a_failed_disk() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        report = await examined(cluster, 2)
        assert (report.role, report.leader, report.followers) == ("follower", 1, ())
        cluster.nodes[2].replica().offline = True
        broken = await examined(cluster, 2)
        assert (broken.role, broken.retention) == ("offline", None)


@on_virtual_time
async def test_broker_without_a_replica_answers_an_error() -> None:
    async with MemoryCluster() as cluster:
        with pytest.raises(UnknownTopicOrPartitionError):
            await examined(cluster, 1)

"""DeleteRecords: which broker answers, which records go, and for which replicas the answer waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.node.test_loop_budget import Turns
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    InvalidRequestError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    RequestTimedOutError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import DeletedRecords, DeleteRecordsPartition, DeleteRecordsRequest


def request_for(offset: int, tp: TopicPartition = TP, timeout_ms: int = 5000) -> DeleteRecordsRequest:
    return DeleteRecordsRequest((DeleteRecordsPartition(*tp, offset),), timeout_ms)


async def delete(
    cluster: MemoryCluster, offset: int, *, to: int | None = None, tp: TopicPartition = TP, timeout_ms: int = 5000
) -> DeletedRecords:
    node = cluster.leader if to is None else cluster.nodes[to]
    answer: Any = await node.ask(request_for(offset, tp, timeout_ms))
    (deleted,) = answer.partitions
    assert isinstance(deleted, DeletedRecords)
    return deleted


async def filled(cluster: MemoryCluster, count: int = 5) -> None:
    await cluster.elect(1)
    for number in range(count):
        assert (await cluster.produce(b"%d" % number))[0] == 0


def starts(cluster: MemoryCluster) -> dict[int, int]:
    return {broker_id: node.log().log_start_offset for broker_id, node in cluster.nodes.items() if node.alive}


@on_virtual_time
async def test_answer_comes_when_all_replicas_have_dropped_the_records() -> None:
    async with MemoryCluster() as cluster:
        await filled(cluster)
        begun_ms = cluster.leader.replicas.clock.monotonic_ms()
        assert (await delete(cluster, 3)) == DeletedRecords(*TP, 0, 3)
        assert starts(cluster) == {1: 3, 2: 3, 3: 3}
        assert cluster.leader.replicas.clock.monotonic_ms() - begun_ms < 100, "followers learn the log start at once"
        assert await cluster.consume(2) == (OffsetOutOfRangeError.code, [])
        assert (await cluster.consume(3))[1] == [b"3", b"4"]


@on_virtual_time
async def test_offset_minus_one_deletes_all_committed_records() -> None:
    async with MemoryCluster() as cluster:
        await filled(cluster)
        assert (await delete(cluster, -1)).low_watermark == 5
        assert (await cluster.produce(b"next")) == (0, 5)
        assert (await cluster.consume(5))[1] == [b"next"]


@on_virtual_time
async def test_leader_learns_of_its_followers_own_retention() -> None:
    async with MemoryCluster() as cluster:
        await filled(cluster)
        await asyncio.sleep(5)
        for broker_id in (2, 1, 3):
            node = cluster.nodes[broker_id]
            node.log().raise_log_start(5)
            node.replicas.log_start_rose(TP)
            await asyncio.sleep(10)
        assert await delete(cluster, 3) == DeletedRecords(*TP, 0, 5)


@on_virtual_time
async def test_deletion_below_the_log_start_succeeds_at_once() -> None:
    async with MemoryCluster() as cluster:
        await filled(cluster)
        await delete(cluster, 3)
        assert (await delete(cluster, 1)) == DeletedRecords(*TP, 0, 3)
        assert starts(cluster) == {1: 3, 2: 3, 3: 3}


@on_virtual_time
async def test_leader_with_a_slow_disk_deletes_once_per_loop_turn() -> None:
    async with MemoryCluster() as cluster:
        await filled(cluster)
        turns = Turns()
        turns.slow(cluster.leader.replicas.loop_budget)
        parts = tuple(DeleteRecordsPartition(*TP, offset) for offset in (1, 2, 3))
        answer: Any = await cluster.leader.ask(DeleteRecordsRequest(parts, 5000))
        assert [each.error_code for each in answer.partitions] == [0, 0, 0]
        assert starts(cluster) == {1: 3, 2: 3, 3: 3}
        assert len(turns.appends) == 3 and turns.have_one_append_each


@on_virtual_time
async def test_uncommitted_records_are_not_deleted() -> None:
    async with MemoryCluster() as cluster:
        await filled(cluster)
        cluster.cut(1, 2, 3)
        assert (await cluster.produce(b"uncommitted", acks=1))[0] == 0
        assert (await delete(cluster, 6)).error_code == OffsetOutOfRangeError.code
        assert (await delete(cluster, -2)).error_code == OffsetOutOfRangeError.code
        assert starts(cluster) == {1: 0, 2: 0, 3: 0}


@on_virtual_time
async def test_only_the_leader_deletes() -> None:
    async with MemoryCluster() as cluster:
        await filled(cluster)
        assert (await delete(cluster, 3, to=2)).error_code == NotLeaderOrFollowerError.code
        nowhere = await delete(cluster, 3, tp=TopicPartition("nowhere", 0))
        assert nowhere.error_code == UnknownTopicOrPartitionError.code
        assert starts(cluster) == {1: 0, 2: 0, 3: 0}


@on_virtual_time
async def test_records_of_a_compacted_topic_are_not_deleted_by_offset() -> None:
    async with MemoryCluster() as cluster:
        cluster.configs = {"min.insync.replicas": "2", "cleanup.policy": "compact"}
        await cluster.elect(1)
        assert (await delete(cluster, 0)).error_code == PolicyViolationError.code
        cluster.configs = {"min.insync.replicas": "2", "cleanup.policy": "compact,delete"}
        await cluster.elect(1)
        assert (await delete(cluster, 0)).error_code == 0


@on_virtual_time
async def test_deletion_waits_for_a_cut_off_live_replica_until_its_timeout() -> None:
    async with MemoryCluster() as cluster:
        await filled(cluster)
        cluster.cut(1, 3)
        deleted = await delete(cluster, 3, timeout_ms=200)
        assert (deleted.error_code, deleted.low_watermark) == (RequestTimedOutError.code, 0)
        assert starts(cluster) == {1: 3, 2: 3, 3: 0}
        again = asyncio.ensure_future(delete(cluster, 3))
        await asyncio.sleep(0.1)
        assert not again.done()
        cluster.heal()
        assert (await again) == DeletedRecords(*TP, 0, 3)
        assert starts(cluster) == {1: 3, 2: 3, 3: 3}


@on_virtual_time
async def test_deletion_does_not_wait_for_a_dead_replica() -> None:
    async with MemoryCluster() as cluster:
        await filled(cluster)
        await cluster.kill(3)
        waiting = asyncio.ensure_future(delete(cluster, 3))
        await asyncio.sleep(0.1)
        assert not waiting.done(), "the controller has not reported the broker as dead yet"
        await cluster.send_state()
        assert (await waiting) == DeletedRecords(*TP, 0, 3)
        cluster.restart(3)
        await cluster.send_state()
        await asyncio.sleep(1)
        assert starts(cluster) == {1: 3, 2: 3, 3: 3}


@on_virtual_time
async def test_epoch_end_and_shutdown_complete_a_waiting_deletion() -> None:
    async with MemoryCluster() as cluster:
        await filled(cluster)
        cluster.cut(1, 3)
        waiting = asyncio.ensure_future(delete(cluster, 3))
        await asyncio.sleep(0.1)
        await cluster.elect(2, send_to=(1,))
        assert (await waiting).error_code == NotLeaderOrFollowerError.code
        await cluster.elect(1)
        waiting = asyncio.ensure_future(delete(cluster, 3))
        await asyncio.sleep(0.1)
        await cluster.leader.replicas.close()
        assert (await waiting).error_code == NotLeaderOrFollowerError.code


@on_virtual_time
async def test_failed_disk_and_negative_timeout_are_refused() -> None:
    async with MemoryCluster() as cluster:
        await filled(cluster)
        with pytest.raises(InvalidRequestError):
            await delete(cluster, 3, timeout_ms=-1)
        cluster.leader.log().broken = True
        assert (await delete(cluster, 3)).error_code == StorageError.code
        assert cluster.leader.storage_errors

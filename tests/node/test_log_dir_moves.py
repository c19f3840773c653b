"""A broker moves replicas between its log directories, on request of a client (KIP-113)."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.log_manager import LogManager
from tests.node.client_requests import TP, produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_node import Node
from tests.node.test_log_directories import Disks
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    InvalidTopicError,
    LogDirNotFoundError,
    ReplicaNotAvailableError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import (
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    LogDirReplica,
    ReplicaLogDir,
)
from tidelog.protocol.messages import ProduceResponse
from verify.simulation.disks.failing_files import Fault

OTHER = TP._replace(partition=1)


async def alter(node: Node, path: object, tp: TopicPartition = TP) -> int:
    answer = await node.ask(AlterReplicaLogDirsRequest((ReplicaLogDir(*tp, str(path)),)))
    (result,) = answer.results
    assert (result.topic, result.partition) == tp and bool(result.error_message) == bool(result.error_code)
    return int(result.error_code)


async def produce(node: Node, *values: bytes, tp: TopicPartition = TP) -> None:
    response = await node.ask(produce_request(*values, tp=tp))
    assert isinstance(response, ProduceResponse) and response.partitions[0].error_code == 0


async def described(node: Node) -> dict[str, tuple[LogDirReplica, ...]]:
    return {Path(each.path).name: each.replicas for each in (await node.ask(DescribeLogDirsRequest())).log_dirs}


def place(manager: LogManager, tp: TopicPartition = TP) -> str:
    directory = manager.directory_of(tp)
    assert directory is not None
    return directory.path.name


@on_virtual_time
async def test_led_replica_moves_and_goes_on(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        leader, manager = cluster.nodes[1], disks.managers[0]
        for _ in range(5):
            await produce(leader, bytes(100_000))
        log, source = leader.replica().log, place(manager)
        target = next(path for path in disks.paths(1) if path.name != source)
        assert await alter(leader, target) == 0
        before = await described(leader)
        assert [(each.is_future, each.offset_lag) for each in before[target.name]] == [(True, 5)]
        assert [each.is_future for each in before[source]] == [False]
        while leader.replica().log is log:
            await produce(leader, b"x")
        await produce(leader, b"y")
        await until(lambda: not leader.moves.in_progress)
        after = await described(leader)
        assert [(each.is_future, each.offset_lag) for each in after[target.name]] == [(False, 0)]
        assert after[source] == ()
        assert leader.replica().log is manager.logs()[TP] is not log
        end = leader.replica().log.log_end_offset
        await until(lambda: all(node.replica().log.log_end_offset == end for node in cluster.nodes.values()))
        assert cluster.states.states[TP].state.isr == (1, 2, 3)


@on_virtual_time
async def test_follower_replica_moves_and_follows_on(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        follower, manager = cluster.nodes[2], disks.managers[1]
        await produce(cluster.nodes[1], bytes(100_000))
        source = place(manager)
        target = next(path for path in disks.paths(2) if path.name != source)
        assert await alter(follower, target) == 0
        await produce(cluster.nodes[1], b"x")
        await until(lambda: place(manager) == target.name and not follower.moves.in_progress)
        await produce(cluster.nodes[1], b"y")
        await until(lambda: follower.replica().log.log_end_offset == 3)


@on_virtual_time
async def test_move_to_an_unknown_or_offline_directory_is_refused(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        await cluster.elect(1, tp=OTHER)
        node, manager = cluster.nodes[1], disks.managers[0]
        first = next(path for path in disks.paths(1) if path.name == place(manager))
        second = next(path for path in disks.paths(1) if path != first)
        assert await alter(node, tmp_path / "nowhere") == LogDirNotFoundError.code
        assert await alter(node, first.name) == LogDirNotFoundError.code, "the path is not absolute"
        assert await alter(node, f"{first}/") == 0, "the log is there already"
        long = TopicPartition("t" * 249, 0)
        assert await alter(node, second, long) == InvalidTopicError.code
        disks.files.fail(Fault.WRITE_ERROR, second)
        response = await node.ask(produce_request(b"x", tp=OTHER))
        assert response.partitions[0].error_code == StorageError.code
        assert await alter(node, second) == StorageError.code
        assert await alter(node, first, OTHER) == StorageError.code, "the replica is offline"
        assert not node.moves.in_progress


@on_virtual_time
async def test_directory_of_a_missing_replica_is_remembered(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        node, manager = cluster.nodes[1], disks.managers[0]
        second = disks.paths(1)[1]
        unknown = TopicPartition("unknown", 0)
        assert await alter(node, second, unknown) == UnknownTopicOrPartitionError.code
        assert await alter(node, second) in (ReplicaNotAvailableError.code, UnknownTopicOrPartitionError.code)
        await cluster.elect(1)
        assert place(manager) == "b", "not in the first of two empty directories"


@on_virtual_time
async def test_move_is_cancelled_by_a_move_to_where_the_log_is(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        node, manager = cluster.nodes[1], disks.managers[0]
        await produce(node, bytes(200_000))
        source = next(path for path in disks.paths(1) if path.name == place(manager))
        target = next(path for path in disks.paths(1) if path != source)
        assert await alter(node, target) == 0 and len(node.moves.in_progress) == 1
        assert await alter(node, target) == 0 and len(node.moves.in_progress) == 1, "the same move again"
        assert await alter(node, source) == 0
        assert not node.moves.in_progress and place(manager) == source.name
        assert not list(target.glob("*-future"))


@on_virtual_time
async def test_full_target_leaves_the_replica_where_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        node, manager = cluster.nodes[1], disks.managers[0]
        await produce(node, bytes(200_000))
        source = place(manager)
        target = next(path for path in disks.paths(1) if path.name != source)
        disks.files.fail(Fault.FULL, target)
        assert await alter(node, target) == 0
        await until(lambda: not node.moves.in_progress)
        assert "is given up" in caplog.text and "No space left" in caplog.text
        await produce(node, b"x")
        assert place(manager) == source and len(await described(node)) == 2
        assert all(each.error_code == 0 for each in (await node.ask(DescribeLogDirsRequest())).log_dirs)

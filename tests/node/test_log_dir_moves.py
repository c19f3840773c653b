"""A broker moves replicas between its log directories, on request of a client (KIP-113)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from storage.log_manager import LogManager
from storage.moves.future_log import FutureLog
from storage.moves.log_move import LogMove
from storage.steps import Steps
from tests.node.client_requests import TP, produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_node import Node
from tests.node.test_log_directories import Disks
from tests.node.test_look_ups import OF_A_CLIENT, T0, large
from tests.storage.logs import append, remove_deleted
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    BrokerNotAvailableError,
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
from tidelog.protocol.control_messages import UpdateMetadataRequest
from tidelog.protocol.messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ProduceResponse
from verify.simulation.disks.failing_files import Fault

OTHER = TP._replace(partition=1)
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


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
        await cluster.elect(2, send_to=[2])
        known = cluster.leader_and_isr()
        node.metadata.update(UpdateMetadataRequest(1, 1, cluster.live(), known.partitions, known.topics))
        assert await alter(node, second) == ReplicaNotAvailableError.code
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


@on_virtual_time
async def test_look_up_goes_on_in_the_moved_log(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        node, manager = cluster.nodes[1], disks.managers[0]
        for timestamp in (T0, T0 + 7, T0 + 9):
            await node.ask(produce_request(batch=large(timestamp)))
        target = next(path for path in disks.paths(1) if path.name != place(manager))
        request = ListOffsetsRequest((ListOffsetsPartition(*TP, T0 + 5),))
        later = node.handlers.handle(request, OF_A_CLIENT)
        assert not isinstance(later, ListOffsetsResponse), "the look-up has more steps"
        assert await alter(node, target) == 0
        await until(lambda: place(manager) == target.name and not node.moves.in_progress)
        remove_deleted(manager)
        node.replica().log.delete_records(2, 3)
        answer = (await later).partitions[0]  # type: ignore[misc, union-attr]
        assert (answer.error_code, answer.offset, answer.timestamp) == (0, 2, T0 + 9), "the old log has offset 1"
        assert all(each.works for each in manager.directories)


@on_virtual_time
async def test_setting_limits_the_rate_of_moves(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        node, manager = cluster.nodes[1], disks.managers[0]
        for _ in range(50):
            await produce(node, bytes(100_000))
        target = next(path for path in disks.paths(1) if path.name != place(manager))
        node.settings.apply({RATE: "100000"}, {})
        begun = asyncio.get_running_loop().time()
        assert await alter(node, target) == 0
        await until(lambda: place(manager) == target.name, 200)
        assert 45 < asyncio.get_running_loop().time() - begun < 75


@on_virtual_time
async def test_deleted_topic_takes_its_copy_along(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        node, manager = cluster.nodes[1], disks.managers[0]
        for _ in range(20):
            await produce(node, bytes(100_000))
        target = next(path for path in disks.paths(1) if path.name != place(manager))
        node.settings.apply({RATE: "1000"}, {})
        assert await alter(node, target) == 0
        await until(lambda: bool(list(target.glob("*-future"))))
        await node.replicas.delete([TP])
        await until(lambda: not list(target.glob("*-future")))
        remove_deleted(manager)
        assert not node.moves.in_progress
        assert [list(path.glob(f"{TP.topic}*")) for path in disks.paths(1)] == [[], []]


@on_virtual_time
async def test_move_is_refused_by_a_broker_that_stops(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        node, manager = cluster.nodes[1], disks.managers[0]
        target = next(path for path in disks.paths(1) if path.name != place(manager))
        await node.moves.stop()
        assert await alter(node, target) == BrokerNotAvailableError.code
        assert not node.moves.in_progress and "Traceback" not in caplog.text


async def test_flush_never_waits_for_a_step_of_another_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks, held = Disks(tmp_path), threading.Event()
    other_begins, other_goes_on = threading.Event(), threading.Event()
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        await cluster.elect(1, tp=OTHER)
        node, manager = cluster.nodes[1], disks.managers[0]
        log, open_copy, hold = node.replica().log, FutureLog.open, Log.hold_flushes
        source, prepare = LogMove._source, LogMove._prepare

        def open_slowly(future: FutureLog, *arguments: Any) -> None:
            if future.topic_partition == OTHER:
                other_goes_on.wait(20)
            open_copy(future, *arguments)

        def source_of(move: LogMove) -> LogDirectory:
            if move.future.topic_partition == OTHER:
                other_begins.set()  # the loop submits the first step before it hears that `hold_flushes` has ended
            return source(move)

        def hold_until_the_other_begins(held_log: Log) -> None:
            hold(held_log)
            held.set()
            assert other_begins.wait(20)

        def prepare_and_flush(move: LogMove, *arguments: Any) -> Steps[None]:
            yield from prepare(move, *arguments)
            if move.future.topic_partition == TP:
                append(log)
                log.flush()

        monkeypatch.setattr(FutureLog, "open", open_slowly)
        monkeypatch.setattr(Log, "hold_flushes", hold_until_the_other_begins)
        monkeypatch.setattr(LogMove, "_source", source_of)
        monkeypatch.setattr(LogMove, "_prepare", prepare_and_flush)
        await produce(node, b"x")
        for tp in (TP, OTHER):
            if tp is OTHER:
                assert await asyncio.to_thread(held.wait, 5)
            home = place(manager, tp)
            assert await alter(node, next(path for path in disks.paths(1) if path.name != home), tp) == 0
        try:
            await asyncio.wait_for(asyncio.to_thread(log.flush), 5)
            assert other_begins.is_set()
        finally:
            other_goes_on.set()

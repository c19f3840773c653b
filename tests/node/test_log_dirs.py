"""The description of a broker's log directories."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time
from tidelog.errors import StorageError
from tidelog.protocol.admin_messages import DescribeLogDirsRequest, LogDirReplica
from tidelog.protocol.messages import DescribePartition


@on_virtual_time
async def test_each_directory_lists_its_logs_or_its_error() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"x")
        size = len(cluster.leader.log().batches[0])
        (directory,) = (await cluster.leader.ask(DescribeLogDirsRequest())).log_dirs
        assert (directory.path, directory.error_code) == ("disk", 0)
        assert directory.replicas == (LogDirReplica(*TP, size, 0),)
        assert (directory.total_bytes, directory.usable_bytes) == (-1, -1), "there is no such disk"
        others = DescribeLogDirsRequest((DescribePartition("other", 0),))
        assert (await cluster.leader.ask(others)).log_dirs[0].replicas == ()
        cluster.leader.directory.failure = StorageError("on fire")
        (directory,) = (await cluster.leader.ask(DescribeLogDirsRequest())).log_dirs
        assert (directory.error_code, directory.error_message) == (StorageError.code, "on fire")
        assert directory.replicas == ()


@on_virtual_time
async def test_hanging_disk_blocks_one_space_query_and_no_answer() -> None:
    async with MemoryCluster() as cluster:
        hanging: list[asyncio.Future[dict[Path, tuple[int, int]]]] = []

        def hang(_: object) -> asyncio.Future[dict[Path, tuple[int, int]]]:
            hanging.append(asyncio.get_running_loop().create_future())
            return hanging[-1]

        replicas = cluster.nodes[1].replicas
        at_once, replicas.offload = replicas.offload, hang  # type: ignore[assignment]
        answers = await asyncio.gather(*(cluster.nodes[1].ask(DescribeLogDirsRequest()) for _ in range(3)))
        assert [each.log_dirs[0].usable_bytes for each in answers] == [-1, -1, -1] and len(hanging) == 1
        hanging[0].set_result({Path("disk"): (100, 7)})
        assert (await cluster.nodes[1].ask(DescribeLogDirsRequest())).log_dirs[0].usable_bytes == 7
        replicas.offload = at_once  # type: ignore[method-assign]
        assert (await cluster.nodes[1].ask(DescribeLogDirsRequest())).log_dirs[0].usable_bytes == -1

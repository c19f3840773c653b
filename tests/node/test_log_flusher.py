"""`flush.messages=1`: an acknowledgement waits until each replica that it counts has flushed the record."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from node.replication.log_flusher import LogFlusher
from storage.configs.log_config import LogConfig
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.log_manager import LogManager
from tests.node.client_requests import TP, batch_of, produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import until
from tidelog.errors import NotLeaderOrFollowerError, RequestTimedOutError, StorageError
from tidelog.protocol.control_messages import StopReplicaPartition, StopReplicaRequest
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.failing_files import FailingFiles, Fault
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT, Fate

DEADLINE_S = 30
DURABLE = {"min.insync.replicas": "2", "flush.messages": "1"}
PAGE_CACHE = {"min.insync.replicas": "2"}


class Disks:
    """One disk for each broker. Flushes of a `.log` file are counted, and wait if the test holds the disk."""

    def __init__(self, crashable: CrashableFiles | None = None) -> None:
        self.crashable = crashable or CrashableFiles()
        self.files = FailingFiles(self.crashable)
        self.files.watch = self._watch
        self.managers: dict[int, LogManager] = {}
        self.syncs: Counter[int] = Counter()
        self._free = {broker_id: threading.Event() for broker_id in (1, 2, 3)}
        self.release(1, 2, 3)

    def __call__(self) -> LogManager:
        broker_id = len(self.managers) + 1
        manager = LogManager.open([self.path(broker_id)], self.files, broker_id, "c", None)
        manager.open_logs(lambda topic: LogConfig.from_topic_configs(DURABLE))
        self.managers[broker_id] = manager
        return manager

    @staticmethod
    def path(broker_id: int) -> Path:
        return Path(f"/{broker_id}")

    def hold(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self._free[broker_id].clear()

    def release(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self._free[broker_id].set()

    def _watch(self, call: str, path: Path) -> None:
        if call == "sync" and path.suffix == ".log":
            broker_id = int(path.parts[1])
            self.syncs[broker_id] += 1
            assert self._free[broker_id].wait(DEADLINE_S)


@asynccontextmanager
async def cluster_on(
    disks: Disks, size: int = 3, configs: dict[str, str] | None = None, *, earlier: MemoryCluster | None = None
) -> AsyncIterator[MemoryCluster]:
    """Start a cluster on the disks. `earlier` is the cluster that used them before; its ZooKeeper state is kept."""
    async with (
        asyncio.timeout(DEADLINE_S),
        MemoryCluster(size, max_lag_ms=60_000, directory=disks, threads=True) as cluster,
    ):
        cluster.configs = DURABLE if configs is None else configs
        if earlier is not None:
            cluster.states.states.update(earlier.states.states)
        await cluster.elect(1)
        try:
            yield cluster
        finally:
            disks.release(1, 2, 3)


def produce(cluster: MemoryCluster, value: bytes = b"x", **how: int) -> asyncio.Task[tuple[int, int]]:
    return asyncio.create_task(cluster.produce(value, **{"timeout_ms": 20_000, **how}))


def flushing_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("flush")}


def acknowledged(cluster: MemoryCluster, follower: int) -> int:
    return cluster.leader.replica().partition.followers[follower].log_end_offset


async def test_log_that_takes_the_place_of_a_failing_one_is_flushed() -> None:
    old = Mock(must_flush=True)
    new = Mock(must_flush=True)
    replica: Any = Mock(log=old)
    flushed, failures = [], []

    async def offload(flush: Callable[[], None]) -> None:
        if replica.log is old:
            replica.log = new  # the replica moves to another log directory
            raise StorageError("its files are deleted")
        flushed.append(flush)
        new.must_flush = False

    flusher = LogFlusher(lambda each: None, lambda error, tp: failures.append(error), offload)
    flusher.begin(replica)
    await flusher.close()
    assert (flushed, failures) == ([new.flush], [])


async def test_acks_all_waits_for_the_leaders_flush_and_so_do_consumers() -> None:
    disks = Disks()
    async with cluster_on(disks) as cluster:
        disks.hold(1)
        waiting = produce(cluster)
        await until(lambda: acknowledged(cluster, 2) == acknowledged(cluster, 3) == 1)
        assert not waiting.done()
        assert await cluster.consume(0) == (0, [])
        disks.release(1)
        assert await waiting == (0, 0)
        assert await cluster.consume(0) == (0, [b"x"])


async def test_acks_all_waits_for_each_followers_flush() -> None:
    disks = Disks()
    async with cluster_on(disks) as cluster:
        disks.hold(2)
        waiting = produce(cluster)
        await until(lambda: acknowledged(cluster, 3) == 1 and cluster.leader.replica().partition.flushed_offset == 1)
        await until(lambda: disks.syncs[2] == 1)
        assert cluster.nodes[2].log().log_end_offset == 1
        assert acknowledged(cluster, 2) == 0
        assert not waiting.done()
        disks.release(2)
        assert await waiting == (0, 0)


async def test_acks_1_waits_only_for_the_leaders_flush() -> None:
    disks = Disks()
    async with cluster_on(disks) as cluster:
        disks.hold(1, 2, 3)
        waiting = produce(cluster, acks=1)
        await until(lambda: all(disks.syncs[broker_id] for broker_id in (1, 2, 3)))
        assert await cluster.leader.ask(produce_request(b"y", acks=0)) is None, "acks=0 gets no answer"
        assert not waiting.done()
        disks.release(1)
        assert await waiting == (0, 0)
        assert cluster.leader.replica().partition.high_watermark == 0


async def test_one_flush_covers_all_appends_during_the_flush_before() -> None:
    disks, before = Disks(), flushing_threads()
    async with cluster_on(disks) as cluster:
        disks.hold(1, 2, 3)
        waiting = [produce(cluster)]
        await until(lambda: all(disks.syncs[broker_id] for broker_id in (1, 2, 3)))
        waiting += [produce(cluster, acks=acks) for acks in (1, -1) * 50]
        await until(lambda: cluster.leader.log().log_end_offset == 101)
        assert len(flushing_threads() - before) == 3, "one thread for each broker"
        disks.release(1, 2, 3)
        assert [code for code, _ in await asyncio.gather(*waiting)] == [0] * 101
        assert disks.syncs == {1: 2, 2: 2, 3: 2}


async def test_flush_without_a_file_descriptor_is_retried() -> None:
    disks, refused = Disks(), 0

    def watch(call: str, path: Path) -> None:
        nonlocal refused
        if call == "sync" and path.suffix == ".log" and refused < 3:
            refused += 1
            raise OutOfDescriptorsError("Too many open files")

    disks.files.watch = watch
    async with cluster_on(disks) as cluster:
        assert await produce(cluster) == (0, 0)
        assert refused == 3
        assert all(manager.works for manager in disks.managers.values())


async def test_topic_without_flush_messages_is_not_flushed() -> None:
    disks = Disks()
    async with cluster_on(disks, configs=PAGE_CACHE) as cluster:
        disks.hold(1, 2, 3)
        for acks in (1, -1):
            assert (await produce(cluster, acks=acks))[0] == 0
        assert not disks.syncs


async def test_flush_messages_3_flushes_without_delaying_acknowledgements() -> None:
    disks = Disks()
    async with cluster_on(disks, configs={**PAGE_CACHE, "flush.messages": "3"}) as cluster:
        disks.hold(1, 2, 3)
        for count in range(1, 5):
            assert (await produce(cluster))[0] == 0
            if count == 2:
                assert not disks.syncs
        await until(lambda: disks.syncs == {1: 1, 2: 1, 3: 1})


async def test_repeated_batch_waits_for_the_flush_like_the_first() -> None:
    disks = Disks()
    async with cluster_on(disks) as cluster:
        disks.hold(1)
        batch = batch_of(b"x", producer_id=5, sequence=0)
        twice = [
            asyncio.create_task(cluster.leader.ask(produce_request(batch=batch, acks=1, timeout_ms=20_000)))
            for _ in range(2)
        ]
        await until(lambda: disks.syncs[1] == 1)
        assert not any(task.done() for task in twice)
        disks.release(1)
        assert [(await task).partitions[0].base_offset for task in twice] == [0, 0]


async def test_flush_beyond_the_timeout_answers_request_timed_out() -> None:
    disks = Disks()
    async with cluster_on(disks) as cluster:
        disks.hold(1)
        for acks in (1, -1):
            assert (await produce(cluster, acks=acks, timeout_ms=50))[0] == RequestTimedOutError.code


async def test_leader_whose_flush_fails_goes_offline_unacknowledged() -> None:
    disks = Disks()
    async with cluster_on(disks) as cluster:
        disks.files.fail(Fault.SYNC_ERROR, disks.path(1))
        waiting = [produce(cluster, acks=acks) for acks in (1, -1)]
        assert [await each for each in waiting] == [(NotLeaderOrFollowerError.code, -1)] * 2
        assert cluster.nodes[1].replica().offline
        assert len(cluster.nodes[1].storage_errors) == 1, "the only log directory has failed"
        await cluster.elect(2, isr=[2, 3], send_to=[2, 3])
        assert (await produce(cluster))[0] == 0


async def test_follower_whose_flush_fails_goes_offline_unacknowledged() -> None:
    disks = Disks()
    async with cluster_on(disks) as cluster:
        disks.files.fail(Fault.SYNC_ERROR, disks.path(3))
        waiting = produce(cluster)
        await until(lambda: cluster.nodes[3].replica().offline)
        await until(lambda: acknowledged(cluster, 2) == 1)
        assert acknowledged(cluster, 3) == 0
        assert not waiting.done()


async def test_acknowledgements_wait_for_flushes_once_the_topic_says_so() -> None:
    disks = Disks()
    async with cluster_on(disks, configs=PAGE_CACHE) as cluster:
        disks.hold(1, 2, 3)
        assert await produce(cluster) == (0, 0)
        cluster.configs = DURABLE
        await cluster.send_state()
        waiting = [produce(cluster), produce(cluster, acks=1)]
        await until(lambda: cluster.leader.log().log_end_offset == 3)
        await until(lambda: all(disks.syncs[broker_id] for broker_id in (1, 2, 3)))
        assert not any(task.done() for task in waiting)
        disks.release(1, 2, 3)
        assert [code for code, _ in await asyncio.gather(*waiting)] == [0, 0]


async def test_acknowledgements_stop_waiting_once_the_topic_says_so() -> None:
    disks = Disks()
    async with cluster_on(disks) as cluster:
        disks.hold(1, 2, 3)
        waiting = [produce(cluster), produce(cluster, acks=1)]
        await until(lambda: all(disks.syncs[broker_id] for broker_id in (1, 2, 3)))
        assert not any(task.done() for task in waiting)
        cluster.configs = PAGE_CACHE
        await cluster.send_state()
        assert [code for code, _ in await asyncio.gather(*waiting)] == [0, 0]


async def test_records_from_before_the_settings_change_are_flushed_too() -> None:
    disks = Disks()
    async with cluster_on(disks, configs=PAGE_CACHE) as cluster:
        cluster.cut(1, 2, 3)
        waiting = produce(cluster)
        await until(lambda: cluster.leader.log().log_end_offset == 1)
        disks.hold(1)
        cluster.configs = DURABLE
        await cluster.send_state()
        cluster.heal()
        await until(lambda: acknowledged(cluster, 2) == acknowledged(cluster, 3) == 1)
        assert not waiting.done()
        disks.release(1)
        assert await waiting == (0, 0)


async def test_new_leader_commits_only_flushed_records() -> None:
    disks = Disks()
    async with cluster_on(disks) as cluster:
        disks.hold(1, 2)
        old = produce(cluster)
        await until(lambda: disks.syncs[2] == 1 and acknowledged(cluster, 3) == 1)
        await cluster.elect(2)
        assert (await old)[0] == NotLeaderOrFollowerError.code, "the answer does not wait for the disk"
        disks.release(1)
        await until(lambda: acknowledged(cluster, 1) == acknowledged(cluster, 3) == 1)
        assert cluster.leader.replica().partition.high_watermark == 0
        disks.release(2)
        await until(lambda: cluster.leader.replica().partition.high_watermark == 1)
        assert await produce(cluster) == (0, 1)


async def test_restarted_leader_counts_recovered_records_only_once_flushed() -> None:
    before = Disks()
    async with cluster_on(before, configs=PAGE_CACHE) as earlier:
        assert await produce(earlier) == (0, 0)
        killed = before.crashable.crash(KEPT)
    disks = Disks(killed)
    disks.hold(1)
    async with cluster_on(disks, earlier=earlier) as cluster:
        await until(lambda: acknowledged(cluster, 2) == acknowledged(cluster, 3) == 1)
        assert cluster.leader.replica().partition.high_watermark == 0
        disks.release(1)
        await until(lambda: cluster.leader.replica().partition.high_watermark == 1)


async def test_topic_can_be_recreated_while_its_old_log_is_flushed() -> None:
    disks = Disks()
    async with cluster_on(disks, 1) as cluster:
        disks.hold(1)
        produce(cluster)
        await until(lambda: disks.syncs[1] == 1)
        produce(cluster)
        await until(lambda: cluster.leader.log().log_end_offset == 2)
        stop = StopReplicaRequest(1, 1, (StopReplicaPartition(*TP, -1, True),))
        answer = await cluster.leader.ask(stop, sender_epoch=1)
        assert [each.error_code for each in answer.partitions] == [0]
        await cluster.elect(1)
        second = produce(cluster, b"second")
        await until(lambda: cluster.leader.log().log_end_offset == 1)
        disks.release(1)
        assert await second == (0, 0)
        assert cluster.leader.storage_errors == []


async def test_stopping_broker_answers_at_once_and_waits_for_the_flush() -> None:
    disks, before = Disks(), flushing_threads()
    async with cluster_on(disks, 1) as cluster:
        disks.hold(1)
        waiting = [produce(cluster, acks=acks) for acks in (1, -1)]
        await until(lambda: disks.syncs[1] == 1)
        closing = asyncio.create_task(cluster.nodes[1].replicas.close())
        assert [code for code, _ in await asyncio.gather(*waiting)] == [NotLeaderOrFollowerError.code] * 2
        assert not closing.done()
        disks.release(1)
        await closing
        await until(lambda: flushing_threads() <= before)


async def records_after_a_power_cut(configs: dict[str, str], choice: Random | Fate) -> tuple[list[bytes], list[bytes]]:
    """Return the values acknowledged before all machines lose power, and the values that a consumer reads after it."""
    before = Disks()
    sent = [b"record %d" % number for number in range(20)]
    async with cluster_on(before, configs=configs) as earlier:
        for index, value in enumerate(sent):
            assert (await produce(earlier, value, acks=(1, -1)[index % 2]))[0] == 0
        crashed = before.crashable.crash(choice)
    async with cluster_on(Disks(crashed), configs=configs, earlier=earlier) as cluster:
        partition = cluster.leader.replica().partition
        await until(lambda: partition.high_watermark == cluster.leader.log().log_end_offset)
        return sent, (await cluster.consume(0))[1]


@pytest.mark.parametrize("seed", [None, *range(5)])
async def test_acknowledged_records_survive_a_power_cut_of_all_machines(seed: int | None) -> None:
    sent, read = await records_after_a_power_cut(DURABLE, FORGOTTEN if seed is None else Random(seed))
    assert read == sent


async def test_power_cut_of_all_machines_loses_unflushed_records() -> None:
    assert (await records_after_a_power_cut(PAGE_CACHE, FORGOTTEN))[1] == []

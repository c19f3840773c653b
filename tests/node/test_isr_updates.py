"""ISR writes and notifications of a broker while ZooKeeper does not answer at first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from cluster.state import PartitionState
from cluster.zookeeper.store import OutcomeUnknownError
from node.replication.isr_updates import IsrUpdates
from node.replication.purgatories import Purgatories
from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import VirtualClock, on_virtual_time, until
from tidelog.model import TopicPartition


class SilentStore:
    """A store that fails a number of notifications and records the others."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.failed_directories: list[int] = []

    async def change_isr(self, tp: TopicPartition, new: PartitionState, partition_epoch: int) -> int:
        raise AssertionError("no ISR changes here")

    async def notify_isr_change(self, tps: Iterable[TopicPartition]) -> None:
        raise AssertionError("no ISR changes here")

    async def notify_log_dir_failure(self, broker_id: int) -> None:
        if self.failures:
            self.failures -= 1
            raise OutcomeUnknownError("ZooKeeper does not answer")
        self.failed_directories.append(broker_id)


async def never(*_: object) -> None:
    raise AssertionError("nothing is written")


@on_virtual_time
async def test_failed_directory_is_reported_until_zookeeper_answers() -> None:
    store, waiting, clock = SilentStore(failures=2), Purgatories(lambda callback: None), VirtualClock()
    changes = IsrUpdates(1, store, waiting, clock, lambda replica, facts: None, never)
    changes.replicas_failed()

    def reported() -> bool:
        changes.tick(clock.monotonic_ms())
        return bool(store.failed_directories)

    await until(reported)
    changes.tick(clock.monotonic_ms())
    assert store.failed_directories == [1], "the failure is reported once"
    await changes.close()


@pytest.mark.parametrize("written", [False, True], ids=["the request is lost", "the answer is lost"])
@on_virtual_time
async def test_smaller_isr_commits_nothing_before_zookeeper_is_known_to_have_it(written: bool) -> None:
    """Until then the controller may elect the leaving follower, which has not copied the record."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        change_isr, attempts = cluster.states.change_isr, 0

        async def lose(tp: TopicPartition, new: PartitionState, partition_epoch: int) -> int:
            nonlocal attempts
            attempts += 1
            if attempts > 3:
                return await change_isr(tp, new, partition_epoch)
            if written and attempts == 1:
                await change_isr(tp, new, partition_epoch)
            raise OutcomeUnknownError("ZooKeeper does not answer")

        cluster.states.change_isr = lose  # type: ignore[method-assign]
        cluster.cut(1, 3)
        acknowledged = asyncio.ensure_future(cluster.produce(b"b", timeout_ms=10_000))
        await until(lambda: attempts == 3)
        assert not acknowledged.done()
        assert cluster.nodes[1].replica().partition.high_watermark == 1
        assert await acknowledged == (0, 1)
        assert attempts == 4
        assert set(cluster.states.states[TP].state.isr) == {1, 2}


@on_virtual_time
async def test_changed_isr_is_reported_until_zookeeper_answers() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        notify, failures = cluster.states.notify_isr_change, 2

        async def lose(tps: Iterable[TopicPartition]) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise OutcomeUnknownError("ZooKeeper does not answer")
            await notify(tps)

        cluster.states.notify_isr_change = lose  # type: ignore[method-assign]
        cluster.cut(1, 3)
        await cluster.produce(b"a", timeout_ms=10_000)
        await until(lambda: cluster.states.notified == [TP])
        assert failures == 0

"""Test that a consumer goes on after a test framework has cancelled all its background tasks."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.tidelog.clients import a_consumer, in_memory, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.tidelog.group_stories import Reading, committed, shared
from tests.virtual_time import on_virtual_time, until
from tidelog import Consumer
from tidelog.errors import InternalError
from tidelog.model import TopicPartition
from tidelog.protocol.addresses import Resolver
from tidelog.protocol.group_messages import HeartbeatRequest
from tidelog.protocol.messages import MetadataRequest, Request

P0, P1 = (TopicPartition("t", number) for number in range(2))

#: Times within a consumer's first second: it finds the cluster, joins, looks up positions, fetches, reads.
MOMENTS_MS = [0, 1, 2, 3, 4, 5, 6, 8, 10, 50, 100, 101, 102, 103, 104, 105, 106, 107, 108, 110, 120, 200, 500, 1000]


class Clients:
    """The tasks that clients have started since, in the tests' process; the fake brokers' tasks are excluded."""

    def __init__(self) -> None:
        self._before = asyncio.all_tasks()

    def cancel_all(self) -> int:
        """Cancel the tasks, and return their number."""
        tasks = [task for task in asyncio.all_tasks() - self._before if not _is_of_a_broker(task)]
        for task in tasks:
            task.cancel()
        return len(tasks)


def _is_of_a_broker(task: asyncio.Task[object]) -> bool:
    return getattr(task.get_coro(), "__qualname__", "").startswith("FakeConnection")


@pytest.mark.parametrize("moment_ms", MOMENTS_MS)
@on_virtual_time
async def test_group_consumer_reads_on_and_heartbeats(moment_ms: int) -> None:
    cluster, clients = FakeCluster(), Clients()
    (partition,) = cluster.create("t")
    put(partition, b"x")
    async with a_consumer(cluster, group_id="g", session_timeout_ms=10_000) as consumer:
        consumer.subscribe(["t"])
        polling = asyncio.create_task(consumer.poll(moment_ms))
        await asyncio.sleep(moment_ms / 1000)
        assert clients.cancel_all()
        await asyncio.gather(polling, return_exceptions=True)
        put(partition, b"y")
        began = seconds()
        while (consumer.assignment(), await consumer.position(P0) if consumer.assignment() else 0) != ({P0}, 2):
            await consumer.poll(100)
            assert seconds() - began < 20
        cluster.requests.clear()
        await asyncio.sleep(60)
        assert len(cluster.sent(HeartbeatRequest)) >= 19
        await consumer.commit()
        assert committed(cluster) == {P0: 2}


@pytest.mark.parametrize("moment_ms", MOMENTS_MS)
@on_virtual_time
async def test_consumer_without_a_group_reads_on(moment_ms: int) -> None:
    cluster, clients = FakeCluster(), Clients()
    for partition in cluster.create("t", 2):
        put(partition, b"x")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P1])
        await asyncio.sleep(moment_ms / 1000)
        assert clients.cancel_all()
        began = seconds()
        assert sorted(await read(consumer, 2)) == [(0, 0, b"x"), (1, 0, b"x")]
        assert seconds() - began < 2


@pytest.mark.parametrize("moment_ms", range(0, 400, 20))
@on_virtual_time
async def test_search_for_a_leader_goes_on(moment_ms: int) -> None:
    cluster, clients = FakeCluster(), Clients()
    (partition,) = cluster.create("t")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await consumer.position(P0)
        cluster.kill(partition.leader, elect=False)
        await asyncio.sleep(moment_ms / 1000)
        clients.cancel_all()
        await asyncio.sleep(2)
        partition.elect(2)
        put(partition, b"x")
        began = seconds()
        assert await read(consumer, 1) == [(0, 0, b"x")]
        assert seconds() - began < 1


@on_virtual_time
async def test_metadata_stays_fresh() -> None:
    cluster, clients = FakeCluster(), Clients()
    cluster.create("t")
    async with a_consumer(cluster, metadata_max_age_ms=10_000) as consumer:
        consumer.assign([P0])
        await consumer.position(P0)
        clients.cancel_all()
        cluster.requests.clear()
        await asyncio.sleep(60)
        assert len(cluster.sent(MetadataRequest)) >= 5


@on_virtual_time
async def test_call_that_waits_for_a_cancelled_refresh_repeats_it() -> None:
    cluster, clients = FakeCluster(), Clients()
    cluster.create("t")
    async with a_consumer(cluster) as consumer:
        before = asyncio.all_tasks()
        asking = asyncio.create_task(consumer.partitions_for_topic("t"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - before - {asking}:
            task.cancel()
        assert await asking == {0}
    assert not clients.cancel_all()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("pause_s", [0.13, 0.37, 1.01, 3.3])
@on_virtual_time
async def test_rebalance_that_is_cut_short_is_finished(strategy: str, pause_s: float) -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 4)
    clients = Clients()
    options = {"partition_assignment_strategy": strategy}
    first, second = Reading(cluster, **options).begin(), Reading(cluster, **options)
    await first.owns(0, 1, 2, 3)
    second.begin()
    for _ in range(8):
        await asyncio.sleep(pause_s)
        clients.cancel_all()
        await asyncio.sleep(0)
        for each in (first, second):
            each.poll_on()
    await shared([first, second], 4)
    for partition in partitions:
        put(partition, b"x")
    await until(lambda: len({tp for each in (first, second) for tp, _ in each.seen}) == 4)
    for each in (first, second):
        await each.close()


@on_virtual_time
async def test_assignment_that_was_not_applied_yet_is_requested_again() -> None:
    cluster, clients = FakeCluster(), Clients()
    cluster.create("t")
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(20)
        await asyncio.sleep(1)  # the group has assigned the partition, which only a poll can take on
        assert cluster.coordinator.groups["g"].members and not consumer.assignment()
        clients.cancel_all()
        began = seconds()
        while consumer.assignment() != {P0}:
            await consumer.poll(100)
            assert seconds() - began < 20


@on_virtual_time
async def test_look_up_of_an_address_that_was_cancelled_is_made_again() -> None:
    clients = Clients()

    async def look_up(host: str) -> tuple[str, ...]:
        return ("10.0.0.1",)

    resolver = Resolver(look_up)
    asking = asyncio.create_task(resolver.resolve("h"))
    await asyncio.sleep(0)  # the task of the look-up exists, and has not taken its first step
    clients.cancel_all()
    await asyncio.gather(asking, return_exceptions=True)
    assert await resolver.resolve("h") == ("10.0.0.1",)


def test_synchronous_group_consumer_reads_on_and_names_the_cancelled_task() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"x")
    cancellations: list[int] = []

    def cancel_all(broker: int, request: Request) -> None:
        """In the consumer's own loop, when it is about to send its third heartbeat."""
        if isinstance(request, HeartbeatRequest) and len(cluster.sent(HeartbeatRequest)) == 2 and not cancellations:
            tasks = [task for task in asyncio.all_tasks() if not _is_of_a_broker(task)]
            cancellations.append(len(tasks))
            for task in tasks:
                task.cancel()

    cluster.on_send = cancel_all
    options = {"group_id": "g", "heartbeat_interval_ms": 50, "auto_offset_reset": "earliest"}
    with in_memory(Consumer, cluster, **options) as consumer:
        consumer.subscribe(["t"])
        errors: list[str] = []
        seen: list[bytes | None] = []
        deadline = time.monotonic() + 30
        while len(cluster.sent(HeartbeatRequest)) < 8 or len(seen) < 2:
            assert time.monotonic() < deadline
            try:
                seen += [record.value for records in consumer.poll(200).values() for record in records]
            except InternalError as error:
                errors.append(str(error))
            if cancellations and partition.end_offset == 1:
                put(partition, b"y")
        assert seen == [b"x", b"y"]
        assert errors in ([], ["the call was cancelled on the I/O thread of the client: repeat it"])

"""What a producer's user feels: some partitions that fail, a full buffer, addresses that are dead, topics that grow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable

import pytest

from tests.tidelog.clients import a_producer, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time, until
from tidelog import Producer
from tidelog.errors import (
    BufferExhaustedError,
    ClosedError,
    InvalidRecordError,
    NotEnoughReplicasError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from tidelog.messages import MetadataRequest, ProduceRequest

# --- partial failures -----------------------------------------------------------------------------


@on_virtual_time
async def test_one_partition_that_is_refused_takes_no_other_with_it() -> None:
    cluster = FakeCluster(brokers=1)
    refused, *good = cluster.create("t", 3)
    refused.max_batch_bytes, refused.too_large = 0, InvalidRecordError
    async with a_producer(cluster, linger_ms=10) as producer:
        futures = [await producer.send("t", b"v", partition=number) for number in range(3)]
        await producer.flush()
        with pytest.raises(InvalidRecordError):
            await futures[0]
        assert [(await future).offset for future in futures[1:]] == [0, 0]
    assert len(cluster.sent(ProduceRequest)) == 1
    assert [partition.values() for partition in good] == [[b"v"], [b"v"]]


@on_virtual_time
async def test_one_partition_that_moved_is_repeated_alone() -> None:
    cluster = FakeCluster(brokers=2)
    moved, stays = cluster.create("t", 2)
    stays.leader = moved.leader
    async with a_producer(cluster, linger_ms=10) as producer:
        await producer.partitions_for("t")
        cluster.move(moved)
        futures = [await producer.send("t", b"v", partition=number) for number in range(2)]
        assert [(await future).offset for future in futures] == [0, 0]
    asked = [[each.partition for each in request.partitions] for request in cluster.sent(ProduceRequest)]
    assert asked == [[0, 1], [0]]


@on_virtual_time
async def test_a_broker_that_hangs_delays_no_record_of_the_others() -> None:
    cluster = FakeCluster()
    cluster.create("t", 3)
    async with a_producer(cluster, delivery_timeout_ms=5000) as producer:
        for number in range(3):
            await producer.send_and_wait("t", b"warm", partition=number)
        cluster.hung.add(1)
        stuck = await producer.send("t", b"v", partition=0)
        started = seconds()
        for _ in range(10):
            for number in (1, 2):
                await producer.send_and_wait("t", b"v", partition=number)
        assert seconds() - started < 0.2
        with pytest.raises(TimeoutError, match="delivery_timeout_ms"):
            await stuck
        assert 4.9 < seconds() - started < 5.2


@on_virtual_time
async def test_a_deadline_does_not_wait_for_the_next_attempt() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.refusals[ProduceRequest].append(NotEnoughReplicasError.code)
    async with a_producer(cluster, retry_backoff_ms=60_000, delivery_timeout_ms=3000) as producer:
        refused = await producer.send("t", b"v")
        started = seconds()
        with pytest.raises(TimeoutError, match="delivery_timeout_ms"):
            await refused
        assert 2.9 < seconds() - started < 3.1


# --- bounds ---------------------------------------------------------------------------------------


@on_virtual_time
async def test_what_waits_never_exceeds_the_buffer_by_more_than_a_record() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    limit, most = 20_000, 0
    async with a_producer(cluster, buffer_memory=limit, batch_size=2000) as producer:

        async def writer() -> None:
            nonlocal most
            for _ in range(200):
                await producer.send("t", b"x" * 500)
                most = max(most, producer.sender.accumulator.buffered_bytes)

        writers: list[Awaitable[None]] = [writer() for _ in range(5)]
        await asyncio.gather(*writers)
        await producer.flush()
        assert producer.sender.accumulator.buffered_bytes == 0
    assert limit - 1000 < most < limit + 1000


@on_virtual_time
async def test_sends_that_find_no_room_leave_nothing_behind() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_producer(cluster, buffer_memory=1, max_block_ms=100, delivery_timeout_ms=3000) as producer:
        await producer.send_and_wait("t", b"warm")
        cluster.hung.add(1)
        await producer.send("t", b"fills it")
        for _ in range(5):
            with pytest.raises(BufferExhaustedError):
                await producer.send("t", b"v")
        assert producer.sender.accumulator._waiting_for_space == []


@on_virtual_time
async def test_a_topic_that_gets_more_partitions_is_used_whole() -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 1)
    async with a_producer(cluster, metadata_max_age_ms=10_000) as producer:
        await producer.send_and_wait("t", b"v")
        partitions.extend(cluster.create("grown", 3)[1:])
        for number, partition in enumerate(partitions):
            partition.topic, partition.number = "t", number
        cluster.partitions["t"] = partitions
        assert (await producer.send_and_wait("t", b"now", partition=2)).partition == 2  # looks at once
        before = len(cluster.sent(MetadataRequest))
        await asyncio.sleep(95)
        assert 9 <= len(cluster.sent(MetadataRequest)) - before <= 10
        for _ in range(30):
            await producer.send_and_wait("t", b"v")
        with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 2, not 3"):
            await producer.send("t", b"v", partition=3)
    assert all(partition.batches for partition in partitions)


@on_virtual_time
async def test_bootstrap_addresses_that_are_dead_or_hang_cost_little() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.kill(3)
    cluster.hung.add(2)
    async with a_producer(cluster, bootstrap_servers="fake:1003,fake:1009,fake:1002,fake:1001") as producer:
        started = seconds()
        await producer.send_and_wait("t", b"v", partition=0)
        assert seconds() - started < 2


@pytest.mark.parametrize(("first", "most", "expected"), [(50, 200, 0.2), (10, 1000, 1.0), (300, 200, 0.3)])
def test_pauses_between_attempts_grow_up_to_their_bound(first: int, most: int, expected: float) -> None:
    @on_virtual_time
    async def story() -> None:
        cluster = FakeCluster()
        cluster.create("t")
        cluster.refusals[ProduceRequest].extend([19] * 40)
        async with a_producer(cluster, retry_backoff_ms=first, retry_backoff_max_ms=most) as producer:
            pauses, before = [], seconds()
            sent = await producer.send("t", b"v")
            for count in range(1, 41):
                await until(lambda count=count: cluster.partitions["t"][0].produces >= count)  # type: ignore[misc]
                pauses.append(seconds() - before)
                before = seconds()
            await sent
            assert pauses[2] < first / 1000 * 1.9
            assert 0.8 * expected <= min(pauses[-5:]) and max(pauses[-5:]) < 1.25 * expected

    story()


# --- threads --------------------------------------------------------------------------------------


def test_a_thread_that_waits_for_room_is_told_when_another_closes() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    producer = Producer(cluster.bootstrap, buffer_memory=1, _opener=cluster.open)
    producer.send("t", b"warm").get(10)
    cluster.hung.add(1)
    producer.send("t", b"v")
    told: list[type[BaseException]] = []
    begun = threading.Event()

    def write() -> None:
        begun.set()
        try:
            producer.send("t", b"w").get(60)
        except (ClosedError, BufferExhaustedError) as error:
            told.append(type(error))

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait(10)
    producer.close(timeout=0.2)
    writer.join(10)
    assert told == [ClosedError]

"""Test `consume`, which returns one list of records."""

from __future__ import annotations

import asyncio

import pytest

import tidelog
from tests.tidelog.clients import a_consumer, in_memory, put, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.tidelog.group_stories import Notes
from tests.virtual_time import on_virtual_time
from tidelog import TopicPartition
from tidelog.client.consumer.fetching import assigned_partition
from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord, FetchBuffer
from tidelog.errors import OffsetOutOfRangeError

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@on_virtual_time
async def test_consume_waits_for_the_number_of_records() -> None:
    cluster = FakeCluster()
    first, second = cluster.create("t", 2)
    put(first, b"0", b"1")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P1])
        consuming = asyncio.create_task(consumer.consume(4, timeout_ms=60_000))
        await asyncio.sleep(5)
        assert not consuming.done()
        put(second, b"2", b"3", b"4")
        records = await consuming
        assert sorted(record.value for record in records) == [b"0", b"1", b"2", b"3"]
        assert [record.value for record in await consumer.consume(4, timeout_ms=100)] == [b"4"]


@on_virtual_time
async def test_consume_returns_fewer_records_after_its_timeout() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0", b"1")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        began = seconds()
        assert [record.offset for record in await consumer.consume(500, timeout_ms=3000)] == [0, 1]
        assert seconds() - began == pytest.approx(3, abs=0.1)
        assert await consumer.consume(500, timeout_ms=0) == []


@on_virtual_time
async def test_consume_returns_more_than_the_buffers_hold() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    for number in range(50):
        put(partition, b"%d" % number * 100)
    async with a_consumer(cluster, max_partition_fetch_bytes=300, fetch_max_bytes=300) as consumer:
        consumer.assign([P0])
        await asyncio.sleep(5)  # the buffers are full, and no fetch is in flight
        began = seconds()
        records = await consumer.consume(50, timeout_ms=60_000)
        assert [record.offset for record in records] == list(range(50))
        assert seconds() - began < 10


@on_virtual_time
async def test_consume_takes_each_record_once_however_many_answers_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the work grows with the square of `max_records`, and delays heartbeats."""
    taken = 0

    class Counting(FetchBuffer):
        def take_records(self, limit: int) -> list[ConsumerRecord]:
            nonlocal taken
            found = super().take_records(limit)
            taken += len(found)
            return found

    monkeypatch.setattr(assigned_partition, "FetchBuffer", Counting)
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    for number in range(50):
        put(partition, b"%d" % number * 100)
    async with a_consumer(cluster, max_partition_fetch_bytes=300, fetch_max_bytes=300) as consumer:
        consumer.assign([P0])
        assert [record.offset for record in await consumer.consume(50, timeout_ms=60_000)] == list(range(50))
    assert taken == 50


@on_virtual_time
async def test_batches_are_whole_after_a_consume_that_was_cancelled() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    for number in range(6):
        put(partition, b"%d" % number, b"x")
    async with a_consumer(cluster, max_partition_fetch_bytes=1, fetch_max_bytes=1) as consumer:
        consumer.assign([P0])
        assert [record.offset for record in await consumer.consume(3)] == [0, 1, 2]
        consuming = asyncio.create_task(consumer.consume(99, timeout_ms=60_000))
        await asyncio.sleep(5)
        consuming.cancel()
        await asyncio.wait([consuming])
        assert await consumer.position(P0) == 3
        at = 3
        while at < 12:
            batches = (await consumer.poll_batches(5_000))[P0]
            assert batches.fetch_offset == at
            at = batches.next_offset


@on_virtual_time
async def test_records_that_a_consume_waits_with_are_not_committed() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0", b"1")
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P0])
        consuming = asyncio.create_task(consumer.consume(3, timeout_ms=60_000))
        await asyncio.sleep(5)
        await consumer.commit()
        assert await consumer.committed(P0) == 0
        put(partition, b"2")
        assert len(await consuming) == 3
        await consumer.commit()
        assert await consumer.committed(P0) == 3


@on_virtual_time
async def test_cancelled_consume_loses_no_record() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0", b"1")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        consuming = asyncio.create_task(consumer.consume(3, timeout_ms=60_000))
        await asyncio.sleep(5)
        consuming.cancel()
        await asyncio.wait([consuming])
        assert [record.offset for record in await consumer.consume(2)] == [0, 1]


@on_virtual_time
async def test_consume_returns_records_before_it_raises_an_error() -> None:
    cluster = FakeCluster()
    first, second = cluster.create("t", 2)
    put(first, b"0")
    put(second, b"0")
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0, P1])
        consumer.seek(P0, 0)
        consumer.seek(P1, 99)
        began = seconds()
        assert [record.topic for record in await consumer.consume(500, timeout_ms=60_000)] == ["t"]
        assert seconds() - began < 30
        with pytest.raises(OffsetOutOfRangeError, match="99"):
            await consumer.consume(500, timeout_ms=60_000)


@on_virtual_time
async def test_consume_runs_rebalances_while_it_waits() -> None:
    cluster = FakeCluster()
    first, second = cluster.create("t", 2)
    put(first, b"0")
    put(second, b"0")
    notes = Notes()
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.subscribe(["t"], listener=notes)
        assert len(await consumer.consume(2, timeout_ms=60_000)) == 2
        assert notes.shown == [("assigned", {P0, P1})]


def test_synchronous_consume_returns_one_list() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 3):
        put(partition, *(b"%d" % number for number in range(10)))
    with in_memory(tidelog.Consumer, cluster, "t", auto_offset_reset="earliest", max_poll_records=1) as consumer:
        records = consumer.consume(30, timeout_ms=10_000)
        assert len(records) == 30
        for number in range(3):
            assert [each.offset for each in records if each.partition == number] == list(range(10))
        assert consumer.position(P0) == 10
        assert consumer.consume(timeout_ms=0) == []

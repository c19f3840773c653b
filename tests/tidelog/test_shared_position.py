"""Test that iteration, polls and commits share one position: the offset after the last record that the user got."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.tidelog.clients import a_consumer, put, read
from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tests.tidelog.group_stories import Notes, committed
from tests.virtual_time import on_virtual_time, until
from tidelog.aio import Consumer
from tidelog.model import TopicPartition
from tidelog.protocol.messages import FetchRequest

P0, P1 = (TopicPartition("t", number) for number in range(2))


def a_group_consumer(cluster: FakeCluster, **options: Any) -> Consumer:
    return a_consumer(cluster, group_id="g", enable_auto_commit=False, **options)


def fill(partition: FakePartition, count: int, *, per_batch: int = 10) -> None:
    for first in range(0, count, per_batch):
        put(partition, *[b"%d" % number for number in range(first, min(first + per_batch, count))])


async def iterate_to(consumer: Consumer, offset: int) -> None:
    """Leave the loop at this offset, as `break` does."""
    async for record in consumer:
        if record.offset == offset:
            return


@pytest.mark.parametrize("max_poll_records", [500, 7])  # of batches of ten
@on_virtual_time
async def test_poll_after_a_broken_iteration_goes_on_behind_the_last_record(max_poll_records: int) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    fill(partition, 1000)
    async with a_group_consumer(cluster, max_poll_records=max_poll_records) as consumer:
        consumer.subscribe(["t"])
        await iterate_to(consumer, 9)
        assert await consumer.position(P0) == 10
        assert [offset for _, offset, _ in await read(consumer, 990)] == list(range(10, 1000))
        assert await consumer.position(P0) == 1000
        await consumer.commit()
        assert committed(cluster) == {P0: 1000}


@on_virtual_time
async def test_commit_after_a_broken_iteration_covers_the_yielded_records() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    fill(partition, 100)
    async with a_group_consumer(cluster) as consumer:
        consumer.subscribe(["t"])
        await iterate_to(consumer, 9)
        await consumer.commit()
        assert committed(cluster) == {P0: 10}
        assert await consumer.position(P0) == 10


@on_virtual_time
async def test_iteration_resumes_where_it_was_broken_off() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    fill(partition, 100)
    async with a_group_consumer(cluster, consumer_timeout_ms=1000) as consumer:
        consumer.assign([P0])
        await iterate_to(consumer, 9)
        await consumer.commit()
        assert [record.offset async for record in consumer] == list(range(10, 100))


@on_virtual_time
async def test_commit_at_each_record_of_an_iteration_fetches_nothing_twice() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    fill(partition, 100)
    async with a_group_consumer(cluster, consumer_timeout_ms=1000) as consumer:
        consumer.assign([P0])
        seen = []
        async for record in consumer:
            seen.append(record.offset)
            await consumer.commit()
            assert committed(cluster) == {P0: record.offset + 1}
        assert seen == list(range(100))
        asked = [each.fetch_offset for request in cluster.sent(FetchRequest) for each in request.partitions]  # type: ignore[attr-defined]
        assert set(asked) == {0, 100}


@on_virtual_time
async def test_poll_batches_after_a_broken_iteration_starts_after_its_record() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    fill(partition, 30)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await iterate_to(consumer, 14)
        batches = (await consumer.poll_batches(5000))[P0]
        assert (batches.fetch_offset, batches.next_offset) == (15, 30)
        assert await consumer.position(P0) == 30


Action = Callable[[Consumer], Awaitable[object]]


async def _seek(consumer: Consumer) -> None:
    consumer.seek(P0, 50)


async def _pause_and_resume(consumer: Consumer) -> None:
    consumer.pause(P0)
    assert await consumer.poll(100) == {}
    consumer.resume(P0)


async def _assign_again(consumer: Consumer) -> None:
    consumer.assign([P0, P1])


async def _give_back_a_poll(consumer: Consumer) -> None:
    consumer.reader.give_back(await consumer.poll(1000, max_records=3))


@pytest.mark.parametrize(
    ("action", "first"), [(_seek, 50), (_pause_and_resume, 10), (_assign_again, 10), (_give_back_a_poll, 10)]
)
@on_virtual_time
async def test_position_after_a_broken_iteration_survives(action: Action, first: int) -> None:
    cluster = FakeCluster()
    partition, _ = cluster.create("t", 2)
    fill(partition, 100)
    async with a_group_consumer(cluster) as consumer:
        consumer.assign([P0])
        await iterate_to(consumer, 9)
        await action(consumer)
        assert await consumer.position(P0) == first
        assert [offset for _, offset, _ in await read(consumer, 100 - first)] == list(range(first, 100))
        await consumer.commit()
        assert committed(cluster)[P0] == 100


@on_virtual_time
async def test_paused_partition_yields_no_records_that_the_iteration_had_fetched() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        fill(partition, 20)
    async with a_consumer(cluster, consumer_timeout_ms=1000) as consumer:
        consumer.assign([P0, P1])
        first = TopicPartition(*(await anext(consumer))[:2])
        consumer.pause(first)
        assert {record.partition async for record in consumer} == {1 - first.partition}
        consumer.resume(first)
        assert [record.offset async for record in consumer] == list(range(1, 20))


@on_virtual_time
async def test_rebalance_after_a_broken_iteration_commits_the_yielded_records() -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 2)
    for partition in partitions:
        fill(partition, 100)
    notes = Notes()
    async with a_consumer(cluster, group_id="g") as first, a_consumer(cluster, group_id="g") as second:
        first.subscribe(["t"], listener=notes)
        seen: dict[TopicPartition, int] = {}
        async for record in first:
            seen[TopicPartition(record.topic, record.partition)] = record.offset + 1
            if len(seen) == 2:
                break
        second.subscribe(["t"])
        joining = asyncio.create_task(second.poll(60_000))
        await until(lambda: bool(cluster.coordinator.groups["g"].members) and len(notes.shown) == 1)
        while len(notes.shown) < 3:  # its polls take part in the rebalance, and read on
            for tp, records in (await first.poll(0)).items():
                seen[tp] = records[-1].offset + 1
            await asyncio.sleep(0.1)
        assert {tp: each for tp, each in committed(cluster).items() if tp in seen} == seen
        for partition in partitions:
            put(partition, b"for the second")
        ((tp, records),) = (await joining).items()
        assert records[0].offset == seen[tp]


@on_virtual_time
async def test_close_after_a_broken_iteration_commits_the_yielded_records() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    fill(partition, 100)
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.subscribe(["t"])
        await iterate_to(consumer, 9)
    assert committed(cluster) == {P0: 10}


@on_virtual_time
async def test_gap_behind_the_last_record_counts_as_read_by_an_iteration_too() -> None:
    """Transactions leave control records at the end of a log, and compaction leaves gaps."""
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    fill(partition, 10)
    fill(partition, 10)
    del partition.batches[0]  # compacted away
    async with a_group_consumer(cluster) as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 5)
        first = await anext(consumer)
        assert first.offset == 10
        await consumer.commit()
        assert committed(cluster) == {P0: 11}
        assert [offset for _, offset, _ in await read(consumer, 9)] == list(range(11, 20))

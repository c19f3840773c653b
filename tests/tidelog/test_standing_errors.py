"""Test that each poll raises a lasting error at its own timeout, and that requests become rarer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.tidelog.clients import a_consumer, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog.aio import Consumer
from tidelog.errors import (
    CorruptMessageError,
    GroupMaxSizeReachedError,
    LogTruncationError,
    NoBrokersError,
    OffsetOutOfRangeError,
    TidelogError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import JoinGroupRequest, OffsetFetchRequest
from tidelog.protocol.messages import FetchRequest, MetadataRequest

P0, P3 = TopicPartition("t", 0), TopicPartition("t", 3)


async def outcomes(consumer: Consumer, polls: int) -> list[tuple[float, type[Exception] | None]]:
    """Return how long each poll of a second took, in seconds, and what it raised."""
    results: list[tuple[float, type[Exception] | None]] = []
    for _ in range(polls):
        began, raised = seconds(), None
        try:
            await consumer.poll(1000)
        except TidelogError as error:
            raised = type(error)
        results.append((round(seconds() - began, 1), raised))
    return results


def no_such_topic(cluster: FakeCluster) -> None:
    """Change nothing."""


def no_such_partition(cluster: FakeCluster) -> None:
    cluster.create("t", 3)


MISSING = [no_such_topic, no_such_partition]


@pytest.mark.parametrize("make", MISSING)
@on_virtual_time
async def test_each_poll_of_a_missing_partition_waits_its_time_and_raises(make: Callable[[FakeCluster], None]) -> None:
    cluster = FakeCluster()
    make(cluster)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P3])
        results = await outcomes(consumer, 30)
        assert {took for took, _ in results} == {1.0}
        certain = next(number for number, (_, raised) in enumerate(results) if raised)
        assert certain <= 4, "a missing topic is certain after some seconds"
        assert {raised for _, raised in results[certain:]} == {UnknownTopicOrPartitionError}


@pytest.mark.parametrize("make", MISSING)
@on_virtual_time
async def test_metadata_requests_for_a_missing_partition_back_off_to_a_second(
    make: Callable[[FakeCluster], None],
) -> None:
    cluster = FakeCluster()
    make(cluster)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P3])
        await outcomes(consumer, 10)
        cluster.requests.clear()
        await outcomes(consumer, 60)
        assert 45 < len(cluster.sent(MetadataRequest)) < 80
        assert not cluster.sent(FetchRequest)


@on_virtual_time
async def test_poll_of_a_deleted_topic_waits_and_finds_the_topic_when_it_is_back() -> None:
    cluster = FakeCluster()
    (old,) = cluster.create("t")
    put(old, b"old")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 1)
        del cluster.partitions["t"]
        old.grown.set()
        results = await outcomes(consumer, 20)
        assert {took for took, _ in results} == {1.0}
        assert {raised for _, raised in results[6:]} == {UnknownTopicOrPartitionError}
        put(*cluster.create("t"), b"new")
        assert await read(consumer, 1) == [(0, 0, b"new")]


@on_virtual_time
async def test_missing_partition_is_raised_once_while_others_have_data() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"x"] * 1000)
    async with a_consumer(cluster, max_poll_records=1) as consumer:
        consumer.assign([P0, TopicPartition("nowhere", 0)])
        raised, returned = 0, 0
        for _ in range(200):
            try:
                returned += len(await consumer.poll(1000))
            except UnknownTopicOrPartitionError:
                raised += 1
            await asyncio.sleep(0.1)
        assert (raised, returned) == (1, 199)


@on_virtual_time
async def test_missing_partition_delays_no_search_for_the_leader_of_another() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, TopicPartition("nowhere", 0)])
        await outcomes(consumer, 20)
        leader, partition.leader = partition.leader, -1
        cluster.live[leader] = False
        for connection in list(cluster.connections[leader]):
            connection.close()
        await asyncio.sleep(5)
        partition.elect(2)
        put(partition, b"x")
        began = seconds()
        assert await read(consumer, 1) == [(0, 0, b"x")]
        assert seconds() - began < 0.5


@on_virtual_time
async def test_iteration_over_a_missing_topic_raises_once_a_second() -> None:
    cluster = FakeCluster()
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        raised = 0
        while seconds() < 1060:
            try:
                async for _ in consumer:
                    raise AssertionError("there is no record")
            except UnknownTopicOrPartitionError:
                raised += 1
        assert 50 < raised < 62


@on_virtual_time
async def test_position_in_a_missing_topic_looks_again_before_it_raises_again() -> None:
    cluster = FakeCluster()
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        began, raised = seconds(), 0
        while seconds() - began < 30:
            with pytest.raises(UnknownTopicOrPartitionError):
                await consumer.position(P0)
            raised += 1
        assert 15 < raised < 60


@on_virtual_time
async def test_new_error_is_raised_at_once_and_again_at_the_end_of_each_poll() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.first_offset = 5
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 2)
        results = await outcomes(consumer, 20)
        assert results[0] == (0.0, OffsetOutOfRangeError)
        assert set(results[1:]) == {(1.0, OffsetOutOfRangeError)}
        assert len(cluster.sent(FetchRequest)) < 40
        consumer.seek(P0, 5)
        put(partition, b"x")
        assert await read(consumer, 1) == [(0, 5, b"x")]


@on_virtual_time
async def test_offset_that_comes_into_range_ends_its_error_without_a_seek() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 1)
        assert [raised for _, raised in await outcomes(consumer, 3)] == [OffsetOutOfRangeError] * 3
        put(partition, b"0", b"1")
        assert await read(consumer, 1) == [(0, 1, b"1")]
        assert await outcomes(consumer, 3) == [(1.0, None)] * 3


@on_virtual_time
async def test_poll_without_a_position_waits_its_time_after_the_first_error() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        results = await outcomes(consumer, 10)
        assert results[0][1] is OffsetOutOfRangeError and results[0][0] < 1
        assert set(results[1:]) == {(1.0, OffsetOutOfRangeError)}


@on_virtual_time
async def test_poll_of_a_lost_log_waits_its_time_after_the_first_error() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0")
    put(partition, b"lost")
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        await read(consumer, 2)
        partition.elect_uncleanly(2, keeping=1)
        results = await outcomes(consumer, 10)
        assert results[0][0] < 1
        assert set(results[1:]) == {(1.0, LogTruncationError)}


@pytest.mark.parametrize("ending", [b"\xff", b""], ids=["damaged", "incomplete"])
@on_virtual_time
async def test_poll_of_a_corrupt_batch_waits_its_time_after_the_first_error(ending: bytes) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"x")
    partition.batches[0] = partition.batches[0][:-1] + ending
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        results = [each for each in await outcomes(consumer, 10) if each[1]]
        assert results[0][0] < 1
        assert set(results[1:]) == {(1.0, CorruptMessageError)}
        assert len(cluster.sent(FetchRequest)) < 30


@on_virtual_time
async def test_poll_of_a_forbidden_topic_waits_its_time_after_the_first_error() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.refusals[FetchRequest].extend([TopicAuthorizationFailedError.code] * 1000)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        results = await outcomes(consumer, 30)
        assert results[0][0] < 1
        assert set(results[1:]) == {(1.0, TopicAuthorizationFailedError)}
        assert len(cluster.sent(FetchRequest)) < 50


@on_virtual_time
async def test_poll_without_brokers_waits_its_time_after_the_first_error() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.live = dict.fromkeys(cluster.live, False)
    async with a_consumer(cluster, bootstrap_timeout_ms=2500) as consumer:
        consumer.assign([P0])
        results = await outcomes(consumer, 20)
        assert [raised for _, raised in results[:2]] == [None, None]
        assert results[2][1] is NoBrokersError and results[2][0] < 1
        assert set(results[3:]) == {(1.0, NoBrokersError)}


@on_virtual_time
async def test_poll_raises_an_error_of_its_group_at_most_once_a_second() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.refusals[JoinGroupRequest].extend([GroupMaxSizeReachedError.code] * 1000)
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.subscribe(["t"])
        began, raised = seconds(), 0
        while seconds() - began < 60:
            with pytest.raises(GroupMaxSizeReachedError):
                await consumer.poll(2000)
            raised += 1
        assert 45 < raised < 80
        assert len(cluster.sent(JoinGroupRequest)) < 80


@on_virtual_time
async def test_poll_without_committed_offsets_waits_after_the_first_error() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.refusals[OffsetFetchRequest].extend([TopicAuthorizationFailedError.code] * 1000)
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.assign([P0])
        results = await outcomes(consumer, 30)
        assert results[0][0] < 1
        assert set(results[1:]) == {(1.0, TopicAuthorizationFailedError)}
        assert len(cluster.sent(OffsetFetchRequest)) < 50


@on_virtual_time
async def test_paused_partition_raises_no_error_until_it_is_resumed() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P3])
        consumer.pause(P3)
        assert {raised for _, raised in await outcomes(consumer, 6)} == {None}
        consumer.resume(P3)
        assert (await outcomes(consumer, 3))[-1] == (1.0, UnknownTopicOrPartitionError)

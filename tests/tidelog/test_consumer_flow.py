"""Test what a consumer holds back, reads ahead and reports: pauses, limits, errors of partitions, iteration."""

from __future__ import annotations

import asyncio

import pytest

from tests.tidelog.clients import a_consumer, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog.errors import CorruptMessageError, OffsetOutOfRangeError, TopicAuthorizationFailedError
from tidelog.model import READ_COMMITTED, TopicPartition
from tidelog.protocol.messages import FetchRequest, ListOffsetsRequest, MetadataRequest

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def fetches(cluster: FakeCluster) -> list[FetchRequest]:
    return [request for _, request in cluster.requests if isinstance(request, FetchRequest)]


# --- pause and resume -----------------------------------------------------------------------------


@on_virtual_time
async def test_paused_partition_returns_nothing_and_resumes_at_its_position() -> None:
    cluster = FakeCluster()
    first, second = cluster.create("t", 2)
    put(first, b"a", b"b")
    put(second, b"c")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P1])
        consumer.pause(P0)
        assert consumer.paused() == {P0}
        assert await read(consumer, 1) == [(1, 0, b"c")]
        assert await consumer.poll(1000) == {} and await consumer.poll_batches(1000) == {}
        assert await consumer.position(P0) == 0
        consumer.resume(P0)
        assert consumer.paused() == set()
        assert await read(consumer, 2) == [(0, 0, b"a"), (0, 1, b"b")]


@on_virtual_time
async def test_data_fetched_before_a_pause_is_kept() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a", b"b", b"c")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        assert len((await consumer.poll(1000, max_records=1))[P0]) == 1
        consumer.pause(P0)
        asked = len(fetches(cluster))
        assert await consumer.poll(5000) == {}
        assert len(fetches(cluster)) <= asked + 1  # at most the one that was in flight
        cluster.hung.add(1)  # records that arrive now were fetched before
        consumer.resume(P0)
        assert [record.offset for record in (await consumer.poll(100))[P0]] == [1, 2]


@on_virtual_time
async def test_a_poll_that_waits_returns_when_another_task_resumes() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await consumer.position(P0)
        await asyncio.sleep(1)
        consumer.pause(P0)
        waiting = asyncio.create_task(consumer.poll(60_000))
        await asyncio.sleep(2)
        started = seconds()
        consumer.resume(P0)
        assert len(await waiting) == 1
        assert seconds() - started < 0.1


@on_virtual_time
async def test_a_pause_outlives_a_seek_and_ends_with_the_assignment() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, b"a", b"b")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P1])
        consumer.pause(P0, P1)
        consumer.seek(P0, 1)
        consumer.assign([P0])
        assert consumer.paused() == {P0} and await consumer.poll(100) == {}
        consumer.assign([])
        consumer.assign([P0, P1])
        assert consumer.paused() == set()
        with pytest.raises(ValueError, match="t-2 is not assigned"):
            consumer.pause(P0, P2)
        assert consumer.paused() == set()


# --- how much is fetched, and when ----------------------------------------------------------------


@on_virtual_time
async def test_fetch_request_follows_the_settings() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    options = {
        "fetch_min_bytes": 7,
        "fetch_max_wait_ms": 321,
        "fetch_max_bytes": 1000,
        "isolation_level": "read_committed",
    }
    async with a_consumer(cluster, max_partition_fetch_bytes=99, **options) as consumer:
        consumer.assign([P0])
        await consumer.poll(100)
        await consumer.end_offsets([P0])
    fetch = fetches(cluster)[0]
    assert (fetch.min_bytes, fetch.max_wait_ms, fetch.max_bytes) == (7, 321, 1000)
    assert fetch.partitions[0].partition_max_bytes == 99
    asked = [request for _, request in cluster.requests if isinstance(request, FetchRequest | ListOffsetsRequest)]
    assert {request.isolation_level for request in asked} == {READ_COMMITTED}


@on_virtual_time
async def test_a_poll_returns_no_more_than_max_poll_records() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, *[b"x"] * 10)
    async with a_consumer(cluster, max_poll_records=7) as consumer:
        consumer.assign([P0, P1])
        sizes = []
        while sum(sizes) < 20:
            sizes.append(sum(map(len, (await consumer.poll(1000)).values())))
        assert max(sizes) == 7


@on_virtual_time
async def test_nothing_more_is_fetched_ahead_once_the_bound_is_reached() -> None:
    cluster = FakeCluster(brokers=1)
    numbers = range(20)
    for partition in cluster.create("t", len(numbers)):
        put(partition, b"x" * 1000)
    limit = 5000
    async with a_consumer(cluster, prefetch_max_bytes=limit, fetch_max_bytes=1000) as consumer:
        consumer.assign([TopicPartition("t", number) for number in numbers])
        for partition in cluster.partitions["t"]:
            for _ in range(3):
                put(partition, b"y" * 1000)
        await asyncio.sleep(30)
        before = len(fetches(cluster))
        await asyncio.sleep(30)
        assert len(fetches(cluster)) == before, "it asks although it has no room"
        assert all(fetch.max_bytes <= 1000 for fetch in fetches(cluster))
        assert len(await read(consumer, 80)) == 80


@on_virtual_time
async def test_data_of_a_paused_partition_is_discarded_for_partitions_in_use() -> None:
    cluster = FakeCluster(brokers=1)
    first, second = cluster.create("t", 2)
    put(first, b"x" * 5000)
    async with a_consumer(cluster, prefetch_max_bytes=4000) as consumer:
        consumer.assign([P0, P1])
        await asyncio.sleep(1)  # by now the buffer is full
        consumer.pause(P0)
        put(second, b"now")
        assert await read(consumer, 1) == [(1, 0, b"now")]
        consumer.resume(P0)
        assert await read(consumer, 1) == [(0, 0, b"x" * 5000)]


@on_virtual_time
async def test_a_seek_does_not_wait_for_the_long_poll_that_it_made_useless() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a")
    async with a_consumer(cluster, fetch_max_wait_ms=20_000) as consumer:
        consumer.assign([P0])
        await read(consumer, 1)
        for _ in range(10):
            await asyncio.sleep(1)
            consumer.seek(P0, 0)
            started = seconds()
            assert await read(consumer, 1, 60_000) == [(0, 0, b"a")]
            assert seconds() - started < 0.1


@on_virtual_time
async def test_answer_to_a_request_before_a_seek_is_not_read_after_it() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a")
    async with a_consumer(cluster, fetch_max_wait_ms=20_000) as consumer:
        consumer.assign([P0])
        await read(consumer, 1)
        await asyncio.sleep(1)  # the fetch behind the last record waits
        put(partition, b"b")
        consumer.seek(P0, 0)
        assert await read(consumer, 2) == [(0, 0, b"a"), (0, 1, b"b")]


# --- errors of some partitions --------------------------------------------------------------------


@on_virtual_time
async def test_error_of_one_partition_does_not_hold_back_data_of_others() -> None:
    cluster = FakeCluster()
    busy, broken = cluster.create("t", 2)
    put(broken, b"x")
    bad = bytearray(broken.batches[0])
    bad[-2] ^= 1
    broken.batches[0] = bytes(bad)
    put(busy, *[b"always there"] * 500)
    seen = 0
    async with a_consumer(cluster, max_poll_records=1) as consumer:
        consumer.assign([P0, P1])
        with pytest.raises(CorruptMessageError, match="t-1"):
            while seen < 400:
                seen += sum(map(len, (await consumer.poll(1000)).values()))
                await asyncio.sleep(0.01)
        assert seen > 0
        assert (await read(consumer, 1))[0][0] == 0  # and it goes on


@on_virtual_time
async def test_out_of_range_error_names_the_partition_and_the_valid_range() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, b"a")
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0, P1])
        consumer.seek(P0, 0)
        consumer.seek(P1, 50)
        got = []
        with pytest.raises(OffsetOutOfRangeError) as refused:
            for _ in range(10):
                got += (await consumer.poll(1000)).get(P0, [])
        assert [record.offset for record in got] == [0]
        assert (refused.value.topic_partition, refused.value.offset) == (P1, 50)
        assert (refused.value.first, refused.value.end) == (0, 1)
        consumer.seek(P1, refused.value.first)
        assert await read(consumer, 1) == [(1, 0, b"a")]


@on_virtual_time
async def test_a_hung_leader_delays_no_error_of_another() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0, P1])
        consumer.seek(P0, 5)
        consumer.seek(P1, 5)
        await consumer.partitions_for_topic("t")
        cluster.hung.add(2)
        started = seconds()
        with pytest.raises(OffsetOutOfRangeError, match="t-0"):
            await consumer.poll(60_000)
        assert seconds() - started < 1


@on_virtual_time
async def test_final_error_is_reported_with_its_partition() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.refusals[FetchRequest].append(TopicAuthorizationFailedError.code)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
            await consumer.poll(1000)


# --- finding the cluster --------------------------------------------------------------------------


@on_virtual_time
async def test_bootstrap_addresses_that_are_dead_or_hang_cost_little() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a")
    cluster.kill(3)
    cluster.hung.add(2)
    async with a_consumer(cluster, bootstrap_servers="fake:1003,fake:1009,fake:1002,fake:1001") as consumer:
        consumer.assign([P0])
        started = seconds()
        assert await read(consumer, 1) == [(0, 0, b"a")]
        assert seconds() - started < 2


@on_virtual_time
async def test_the_picture_of_the_cluster_grows_no_older_than_its_setting() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_consumer(cluster, metadata_max_age_ms=10_000) as consumer:
        consumer.assign([P0])
        await consumer.poll(100)
        before = len(cluster.sent(MetadataRequest))
        await consumer.poll(95_000)
        assert 9 <= len(cluster.sent(MetadataRequest)) - before <= 10


# --- iteration ------------------------------------------------------------------------------------


@on_virtual_time
async def test_broken_iteration_resumes_with_the_next_record() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *(b"%d" % number for number in range(10)))
    seen = []
    async with a_consumer(cluster, consumer_timeout_ms=300) as consumer:
        consumer.assign([P0])
        for stop in (2, 5, 99):
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == stop:
                    break
        assert seen == list(range(10))


@on_virtual_time
async def test_an_iteration_ends_when_nothing_came_for_its_time() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_consumer(cluster, consumer_timeout_ms=2500) as consumer:
        consumer.assign([P0])
        started = seconds()
        asyncio.get_running_loop().call_later(2, put, partition, b"late")
        assert [record.value async for record in consumer] == [b"late"]
        assert 4.4 < seconds() - started < 4.8


@on_virtual_time
async def test_iteration_follows_seeks_and_breaks_of_its_reader() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, *[b"x"] * 10)
    seen: list[tuple[int, int]] = []
    async with a_consumer(cluster, consumer_timeout_ms=300) as consumer:
        consumer.assign([P0])
        async for record in consumer:
            seen.append((record.partition, record.offset))
            if record.offset == 3:
                consumer.seek(P0, 8)
            elif record.offset == 8 and record.partition == 0:
                consumer.assign([P1])
                consumer.seek(P1, 9)
    assert seen == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 8), (1, 9)]


# --- time and cancellation ------------------------------------------------------------------------


@on_virtual_time
async def test_poll_without_data_takes_exactly_its_timeout() -> None:
    cluster = FakeCluster()
    first, second = cluster.create("t", 2)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P1])
        await consumer.poll(1000)
        cluster.hung.add(2)
        for timeout_ms in (0, 1, 37, 500, 12_345):
            started = seconds()
            assert await consumer.poll(timeout_ms) == {}
            assert seconds() - started == pytest.approx(timeout_ms / 1000, abs=0.002)
            cluster.move(first)
        first.leader = second.leader = -1
        started = seconds()
        assert await consumer.poll(3000) == {} and await consumer.poll_batches(4000) == {}
        assert seconds() - started == pytest.approx(7, abs=0.005)


@on_virtual_time
async def test_polls_that_are_cancelled_at_any_moment_lose_no_record() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    seen: list[int] = []
    async with a_consumer(cluster, max_poll_records=1) as consumer:
        consumer.assign([P0])
        for number in range(200):
            put(partition, b"%d" % number)
            polling = asyncio.create_task(consumer.poll(10_000))
            for _ in range(number % 9):
                await asyncio.sleep(0.0002 * (number % 5))
            polling.cancel()
            await asyncio.wait({polling})
            if not polling.cancelled():
                seen += [record.offset for record in polling.result().get(P0, [])]
            for question in (consumer.position(P0), consumer.end_offsets([P0])):
                asked = asyncio.create_task(question)
                await asyncio.sleep(0)
                asked.cancel()
        while len(seen) < 200:
            polled = await consumer.poll(5000, max_records=50)
            assert polled
            seen += [record.offset for record in polled[P0]]
    assert seen == list(range(200))

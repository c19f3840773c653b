"""Test the consumer: positions, order, long polls, leader changes, and look-ups by time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tidelog.clients import a_consumer, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    ConfigError,
    CorruptMessageError,
    NoBrokersError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.messages import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest, Request
from tidelog.records.decode import decode_records
from tidelog.records.encode import encode_batch

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


@on_virtual_time
async def test_records_arrive_in_offset_order_with_all_fields() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.epoch = 4
    put(partition, b"a", b"b", at_ms=7)
    partition.append(encode_batch([(9, b"k", None, [("h", b"x")])]))
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        records = (await consumer.poll(1000))[P0]
        assert [(r.offset, r.timestamp, r.key, r.value) for r in records] == [
            (0, 7, None, b"a"), (1, 7, None, b"b"), (2, 9, b"k", None),
        ]  # fmt: skip
        assert records[2].headers == (("h", b"x"),) and records[2].leader_epoch == 4
        assert await consumer.position(P0) == 3 and consumer.highwater(P0) == 3


@on_virtual_time
async def test_reading_starts_inside_a_batch_and_stops_inside_one() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *(b"%d" % number for number in range(10)))
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 3)
        assert [r.offset for r in (await consumer.poll(1000, max_records=4))[P0]] == [3, 4, 5, 6]
        assert await consumer.position(P0) == 7
        batches = (await consumer.poll_batches(1000))[P0]
        assert (batches.fetch_offset, batches.next_offset) == (7, 10)
        assert [record.offset for record in decode_records(batches.records)] == list(range(10))
        assert await consumer.position(P0) == 10
        assert await consumer.poll(100) == {}


@on_virtual_time
async def test_a_waiting_poll_returns_as_soon_as_something_is_written() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_consumer(cluster, auto_offset_reset="latest") as consumer:
        consumer.assign([P0])
        assert await consumer.poll(2000) == {}
        waiting = asyncio.create_task(consumer.poll(60_000))
        await asyncio.sleep(3.21)
        put(partition, b"now")
        started = seconds()
        assert [record.value for record in (await waiting)[P0]] == [b"now"]
        assert seconds() - started < 0.01


@on_virtual_time
async def test_a_busy_partition_does_not_wait_for_the_long_poll_of_an_idle_one() -> None:
    cluster = FakeCluster(brokers=1)
    busy, _ = cluster.create("t", 2)
    for number in range(50):
        put(busy, b"%d" % number)
    async with a_consumer(cluster, max_partition_fetch_bytes=1) as consumer:
        consumer.assign([P0, P1])
        started = seconds()
        assert len(await read(consumer, 50)) == 50
        assert seconds() - started < 0.3


@on_virtual_time
async def test_every_partition_gets_its_turn() -> None:
    cluster = FakeCluster(brokers=1)
    for partition in cluster.create("t", 3):
        put(partition, *[b"x"] * 1000)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P1, P2])
        await consumer.poll(1000)
        await asyncio.sleep(0.1)
        assert len(await consumer.poll(1000)) == 3


@on_virtual_time
async def test_seek_drops_fetched_data_and_answers_in_flight() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    for number in range(20):
        put(partition, b"%d" % number)
    async with a_consumer(cluster, max_partition_fetch_bytes=1) as consumer:
        consumer.assign([P0])
        await read(consumer, 2)
        for offset in (15, 4, 11):
            consumer.seek(P0, offset)
            assert (await read(consumer, 1))[0][1] == offset
            consumer.seek(P0, 0)
        consumer.seek_to_end(P0)
        assert await consumer.position(P0) == 20
        consumer.seek_to_beginning()
        assert await consumer.position(P0) == 0


@on_virtual_time
async def test_assignment_keeps_positions_of_those_that_stay() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, b"a", b"b")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 2)
        consumer.assign([P0, P1])
        assert consumer.assignment() == {P0, P1}
        assert [place[0] for place in await read(consumer, 2)] == [1, 1]
        consumer.assign([])
        assert await consumer.poll(10) == {}
        with pytest.raises(ValueError, match="t-0 is not assigned"):
            consumer.seek(P0, 0)


@on_virtual_time
async def test_a_leader_move_costs_less_than_200_ms() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 1)
        for number in range(1, 6):
            cluster.move(partition)
            put(partition, b"%d" % number)
            started = seconds()
            assert await read(consumer, 1) == [(0, number, b"%d" % number)]
            assert seconds() - started < 0.2


@on_virtual_time
async def test_reader_leaves_a_hung_leader_when_another_is_elected() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 1)
        cluster.hung.add(1)
        await asyncio.sleep(2)
        cluster.move(partition)
        put(partition, b"1")
        started = seconds()
        assert await read(consumer, 1) == [(0, 1, b"1")]
        assert seconds() - started < 3


@on_virtual_time
async def test_reset_to_an_offset_that_the_leader_refuses_has_pauses() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0")
    partition.high_watermark = 99  # the leader returns this end, and refuses to read there
    async with a_consumer(cluster, auto_offset_reset="latest") as consumer:
        consumer.assign([P0])
        assert not await consumer.poll(20_000)
        assert 10 < len(cluster.sent(ListOffsetsRequest)) < 60
        partition.high_watermark = None
        await asyncio.sleep(2)
        put(partition, b"1")
        assert await read(consumer, 1) == [(0, 1, b"1")]
        sent = len(cluster.sent(ListOffsetsRequest))
        consumer.seek(P0, 50)
        started = seconds()
        await consumer.poll(100)
        assert len(cluster.sent(ListOffsetsRequest)) == sent + 1, "the first reset after an answer has no pause"
        assert seconds() - started < 0.2


@on_virtual_time
async def test_an_offset_out_of_range_follows_the_policy() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    for number in range(10):
        put(partition, b"%d" % number)
    partition.first_offset = 5
    del partition.batches[:5]
    for policy, offset in (("earliest", 5), ("latest", 10)):
        async with a_consumer(cluster, auto_offset_reset=policy) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 2)
            await consumer.poll(100, max_records=1)
            assert await consumer.position(P0) == min(offset + 1, 10)
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        with pytest.raises(OffsetOutOfRangeError, match="no position") as without:
            await consumer.poll(1000)
        assert (without.value.topic_partition, without.value.offset) == (P0, -1)
        for offset in (2, 99):
            consumer.seek(P0, offset)
            with pytest.raises(OffsetOutOfRangeError, match=f"t-0: offset {offset} .* 5 to 10") as refused:
                await consumer.poll(1000)
            assert (refused.value.topic_partition, refused.value.offset) == (P0, offset)
            assert (refused.value.first, refused.value.end) == (5, 10)
        consumer.seek(P0, 5)
        assert (await read(consumer, 1))[0][1] == 5


@on_virtual_time
async def test_missing_topics_and_partitions_are_reported() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_consumer(cluster) as consumer:
        consumer.assign([TopicPartition("nowhere", 0)])
        started = seconds()
        with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
            await consumer.poll(60_000)
        assert seconds() - started < 5
        consumer.assign([TopicPartition("t", 9)])
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 9"):
            await consumer.poll(60_000)
        assert await consumer.partitions_for_topic("nowhere") is None
        assert await consumer.partitions_for_topic("t") == {0}
        assert await consumer.topics() == {"t"}


@on_virtual_time
async def test_cluster_that_is_down_is_reported_once_certain() -> None:
    cluster = FakeCluster()
    cluster.live = dict.fromkeys(cluster.live, False)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        with pytest.raises(NoBrokersError, match="fake:1001"):
            await consumer.poll(60_000)
        with pytest.raises(NoBrokersError):
            await consumer.end_offsets([P0])


@on_virtual_time
async def test_corrupt_batch_is_reported_with_its_offset() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"good")
    put(partition, b"bad")
    broken = bytearray(partition.batches[1])
    broken[-2] ^= 1
    partition.batches[1] = bytes(broken)
    async with a_consumer(cluster, max_partition_fetch_bytes=1) as consumer:
        consumer.assign([P0])
        assert (await read(consumer, 1))[0][2] == b"good"
        with pytest.raises(CorruptMessageError, match="t-0 at 1"):
            await consumer.poll(60_000)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"auto_offset_reset": "now"}, "auto_offset_reset"),
        ({"isolation_level": 1}, "isolation_level"),
        ({"max_poll_records": 0}, "max_poll_records must be 1 or more, not 0"),
        ({"max_poll_records": 1 << 80}, "max_poll_records must be 1 or more and at most 9223372036854775807"),
        ({"max_poll_records": 1.5}, "max_poll_records must be a whole number, not 1.5"),
        ({"max_decompressed_batch_bytes": 0}, "max_decompressed_batch_bytes"),
        ({"max_decompressed_batch_bytes": (1 << 30) + 1}, "max_decompressed_batch_bytes"),
        ({"group": "g"}, "did you mean group_id"),
        ({"group_id": 7}, "group_id"),
        ({"group_instance_id": "i"}, "group_instance_id needs a group_id"),
        ({"group_id": "g", "group_instance_id": ""}, "group_instance_id"),
        ({"enable_auto_commit": "no"}, "enable_auto_commit"),
        ({"auto_commit_interval_ms": -1}, "auto_commit_interval_ms"),
        ({"session_timeout_ms": 0}, "session_timeout_ms"),
        ({"max_poll_interval_ms": 1 << 31}, "max_poll_interval_ms"),
        ({"session_timeout_ms": 6000, "heartbeat_interval_ms": 6000}, "must be less than session_timeout_ms .6000."),
        ({"partition_assignment_strategy": "rang"}, "one or some of 'range', .* not 'rang'"),
        ({"partition_assignment_strategy": ()}, "partition_assignment_strategy"),
        ({"partition_assignment_strategy": ("sticky", "sticky")}, "each once"),
    ],
)
def test_a_wrong_setting_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        a_consumer(FakeCluster(), **options)


# --- any schedule of faults -----------------------------------------------------------------------

_HARMFUL = [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.SWALLOW, Fault.DELAY, Fault.MOVE_LEADERS]


@settings(max_examples=100)
@given(
    faults=st.lists(st.one_of(st.none(), st.sampled_from(_HARMFUL)), max_size=20),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=30),
    seed=st.integers(0, 1000),
)
@on_virtual_time
async def test_every_record_arrives_once_in_order_under_any_faults(
    faults: list[Fault | None], sizes: list[int], seed: int
) -> None:
    rng = random.Random(seed)
    cluster = FakeCluster()
    partitions = cluster.create("t", 3)
    schedule = iter(faults)
    cluster.fault_of = lambda broker, request: next(schedule, None) if _reads(request) else None
    for number, size in enumerate(sizes):
        put(partitions[number % 3], *[b"%d" % number] * size)
    async with a_consumer(cluster, max_partition_fetch_bytes=200, request_timeout_ms=1500) as consumer:
        consumer.assign([P0, P1, P2])
        expected = {P0: 0, P1: 0, P2: 0}
        while sum(expected.values()) < sum(sizes):
            polled = await consumer.poll(20_000, max_records=rng.randint(1, 7))
            assert polled
            for tp, records in polled.items():
                for record in records:
                    assert record.offset == expected[tp]
                    expected[tp] += 1


def _reads(request: Request) -> bool:
    return isinstance(request, FetchRequest | ListOffsetsRequest | OffsetForLeaderEpochRequest)

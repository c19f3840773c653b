"""Test the producer with a batch that the leader rejects because of single records (KIP-467)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tidelog.clients import a_producer
from tests.tidelog.fake_cluster import FakeCluster, FakePartition, Fault
from tests.virtual_time import on_virtual_time
from tidelog.client.producer.record_future import RecordFuture
from tidelog.errors import BrokerError, InvalidRecordError, InvalidTimestampError, MessageTooLargeError
from tidelog.protocol.messages import InitProducerIdRequest, ProduceRequest, Request
from tidelog.records import encode_batch
from tidelog.records.decode import Record
from tidelog.records.header import read_header


def a_topic_of_records_below(bound: int, error: type[BrokerError] = InvalidTimestampError) -> tuple[Any, FakePartition]:
    """A topic that accepts timestamps below `bound`."""
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.excluded = error

    def fault_of(record: Record) -> str | None:
        return f"timestamp {record.timestamp} is too late" if record.timestamp >= bound else None

    partition.fault_of = fault_of
    return cluster, partition


async def fill_a_batch(producer: Any, stamps: list[int]) -> list[RecordFuture]:
    """Records that share a batch; each has its number as value."""
    return [await producer.send("t", b"%d" % number, timestamp_ms=stamp) for number, stamp in enumerate(stamps)]


@pytest.mark.parametrize("error", [InvalidTimestampError, InvalidRecordError])
@on_virtual_time
async def test_one_bad_record_of_six_fails_alone_and_the_others_are_stored(error: type[BrokerError]) -> None:
    cluster, partition = a_topic_of_records_below(1000, error)
    async with a_producer(cluster, linger_ms=20) as producer:
        futures = await fill_a_batch(producer, [1, 1, 1, 10**15, 1, 1])
        await producer.flush()
    refused = futures[3].exception(0)
    assert type(refused) is error and str(refused) == f"timestamp {10**15} is too late"
    assert not futures[3].may_be_stored()
    others = futures[:3] + futures[4:]
    assert [future.get(0).offset for future in others] == [0, 1, 2, 3, 4]
    assert partition.values() == [b"0", b"1", b"2", b"4", b"5"]
    assert partition.produces == 2 and len(cluster.sent(InitProducerIdRequest)) == 1


@on_virtual_time
async def test_each_bad_record_gets_its_own_error_at_any_position() -> None:
    cluster, partition = a_topic_of_records_below(1000)
    async with a_producer(cluster, linger_ms=20) as producer:
        futures = await fill_a_batch(producer, [1000, 1, 1001, 1002, 1, 1003])
        later = await producer.send_and_wait("t", b"later", timestamp_ms=1)
    outcomes = [str(future.exception(0) or future.get(0).offset) for future in futures]
    late = "timestamp {} is too late".format
    assert outcomes == [late(1000), "0", late(1001), late(1002), "1", late(1003)]
    assert partition.values() == [b"1", b"4", b"later"] and later.offset == 2


@on_virtual_time
async def test_a_batch_of_bad_records_alone_is_not_sent_again() -> None:
    cluster, partition = a_topic_of_records_below(1000)
    async with a_producer(cluster, linger_ms=20) as producer:
        futures = await fill_a_batch(producer, [2000, 2001])
        await producer.flush()
        assert [str(future.exception(0)) for future in futures] == [
            "timestamp 2000 is too late",
            "timestamp 2001 is too late",
        ]
        assert partition.produces == 1 and producer.sender.accumulator.buffered_bytes == 0
        await producer.send_and_wait("t", b"later", timestamp_ms=1)
    assert len(cluster.sent(InitProducerIdRequest)) == 1


@on_virtual_time
async def test_records_behind_the_batch_stay_behind_the_ones_that_are_sent_again() -> None:
    cluster, partition = a_topic_of_records_below(1000)
    async with a_producer(cluster, batch_size=200) as producer:
        futures = await fill_a_batch(producer, [10**15 if number % 7 == 3 else 1 for number in range(100)])
        await producer.flush()
    assert partition.values() == [b"%d" % number for number in range(100) if number % 7 != 3]
    assert [future.failed() for future in futures] == [number % 7 == 3 for number in range(100)]


@on_virtual_time
async def test_rejection_without_a_valid_record_index_fails_the_whole_batch() -> None:
    cluster, partition = a_topic_of_records_below(1000)
    partition.fault_of = lambda record: None

    def refuse(batch: bytes) -> int:
        raise InvalidRecordError("no", record_errors={7: "there is no such record", -1: "nor this"})

    partition.append = refuse  # type: ignore[method-assign]
    async with a_producer(cluster, linger_ms=20) as producer:
        futures = await fill_a_batch(producer, [1, 1])
        await producer.flush()
    assert [str(future.exception(0)) for future in futures] == ["no", "no"]


@on_virtual_time
async def test_encoded_batch_with_a_bad_record_fails_whole_and_names_it() -> None:
    cluster, partition = a_topic_of_records_below(1000)
    async with a_producer(cluster) as producer:
        batch = encode_batch([(1, None, b"a", ()), (2000, None, b"b", ()), (1, None, b"c", ())])
        future = await producer.send_batch("t", batch, partition=0)
        with pytest.raises(InvalidTimestampError, match="record 1"):
            await future
    assert partition.values() == []


@on_virtual_time
async def test_a_ready_made_batch_that_is_split_fails_if_any_of_its_records_does() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.max_batch_bytes = 300
    async with a_producer(cluster) as producer:
        batch = encode_batch([(1, None, b"a", ()), (1, None, b"b" * 500, ()), (1, None, b"c", ())])
        future = await producer.send_batch("t", batch, partition=0)
        with pytest.raises(MessageTooLargeError):
            await future
        assert future.failed() and not future.succeeded()
    assert partition.values() == [b"a", b"c"]


@settings(max_examples=150)
@given(
    bad=st.lists(st.booleans(), min_size=1, max_size=40),
    limit=st.sampled_from([120, 300, 100_000]),
    faults=st.lists(st.none() | st.sampled_from([f for f in Fault if f is not Fault.FORGET_PRODUCERS]), max_size=8),
)
@on_virtual_time
async def test_good_records_are_stored_once_and_bad_ones_fail_alone_under_faults(
    bad: list[bool], limit: int, faults: list[Fault | None]
) -> None:
    cluster, partition = a_topic_of_records_below(1000)
    partition.max_batch_bytes = limit
    schedule = iter(faults)

    def fault_of(broker: int, request: Request) -> Fault | None:
        return next(schedule, None) if isinstance(request, ProduceRequest) else None

    cluster.fault_of = fault_of
    async with a_producer(cluster, linger_ms=20, request_timeout_ms=1500) as producer:
        futures = await fill_a_batch(producer, [1000 + number if each else 1 for number, each in enumerate(bad)])
        await producer.flush()
        assert producer.sender.accumulator.buffered_bytes == 0
    await asyncio.sleep(10)  # the delayed answers have arrived by now
    good = [b"%d" % number for number, each in enumerate(bad) if not each]
    assert partition.values() == good
    for number, (each, future) in enumerate(zip(bad, futures, strict=True)):
        if each:
            assert str(future.exception(0)) == f"timestamp {1000 + number} is too late"
        else:
            offset = future.get(0).offset
            assert offset == -1 or partition.records()[offset].value == b"%d" % number
    sequences = [read_header(each) for each in partition.batches]
    assert all(header.record_count == header.last_offset_delta + 1 for header in sequences)

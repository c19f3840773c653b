"""Test that encoded batches go through the producer like records: in order, once, in parts if need be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.tidelog.clients import a_consumer, a_producer, in_memory
from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.virtual_time import on_virtual_time
from tidelog import Producer
from tidelog.errors import (
    BufferExhaustedError,
    CorruptMessageError,
    InvalidRecordError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.messages import ProduceRequest
from tidelog.records import Codec, encode_batch, read_header, stamp_log_append_time
from tidelog.records.header import HEADER, seal
from tidelog.records.ready_made import ReadyMadeBatch

P0 = TopicPartition("t", 0)


def batch_of(*values: bytes, **header: Any) -> bytes:
    return encode_batch([(5 + number, None, value, ()) for number, value in enumerate(values)], **header)


def altered(**fields: int) -> bytes:
    """Return a batch of two records whose header has other counts, with a right CRC."""
    draft = bytearray(batch_of(b"a", b"b"))
    HEADER.pack_into(draft, 0, *read_header(draft)._replace(**fields))
    seal(draft, 0, len(draft))
    return bytes(draft)


@on_virtual_time
async def test_its_future_has_the_place_of_the_last_record() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster) as producer:
        assert await (await producer.send_batch("t", batch_of(b"a", b"b", b"c"), partition=0)) == ("t", 0, 2, 7)
        assert await (await producer.send_batch("t", batch_of(b"d"), partition=0)) == ("t", 0, 3, 5)
    assert partition.values() == [b"a", b"b", b"c", b"d"]
    assert [len(batch) for batch in partition.batches] == [len(batch_of(b"a", b"b", b"c")), len(batch_of(b"d"))]


@on_virtual_time
async def test_records_before_and_after_it_keep_their_places() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send("t", b"1", partition=0)
        await producer.send_batch("t", batch_of(b"2", b"3"), partition=0)
        await producer.send("t", b"4", partition=0)
        await producer.send_batch("t", batch_of(b"5"), partition=0)
        await producer.send("t", b"6", partition=0)
    assert partition.values() == [b"1", b"2", b"3", b"4", b"5", b"6"]


@on_virtual_time
async def test_lost_answer_does_not_duplicate_an_encoded_batch() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    faults = iter([Fault.LOSE_ANSWER])
    cluster.fault_of = lambda broker, request: next(faults, None) if isinstance(request, ProduceRequest) else None
    foreign = batch_of(b"a", b"b", producer_id=99, producer_epoch=3, base_sequence=41, base_offset=1000, leader_epoch=8)
    async with a_producer(cluster) as producer:
        await producer.send_batch("t", foreign, partition=0)
        await producer.send_batch("t", foreign, partition=0)
        await producer.flush()
    assert partition.values() == [b"a", b"b", b"a", b"b"]
    headers = [read_header(batch) for batch in partition.batches]
    assert headers[1].base_sequence == headers[0].base_sequence + 2
    assert 99 not in {header.producer_id for header in headers}


def test_producer_fields_and_offsets_are_replaced() -> None:
    foreign = batch_of(b"a", b"b", producer_id=99, producer_epoch=3, base_sequence=41, base_offset=1000, leader_epoch=8)
    mine = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 5}
    assert ReadyMadeBatch(foreign).build(**mine) == batch_of(b"a", b"b", **mine)
    assert ReadyMadeBatch(memoryview(foreign)).build() == batch_of(b"a", b"b")


@on_virtual_time
async def test_batch_from_poll_batches_can_be_sent() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    (copy,) = cluster.create("copy")
    async with a_producer(cluster, compression_type="lz4") as producer, a_consumer(cluster) as consumer:
        await producer.send("t", b"old" * 100, partition=0)
        await producer.send("t", b"new" * 100, partition=0)
        await producer.flush()
        consumer.assign([P0])
        consumer.seek(P0, 0)
        fetched = (await consumer.poll_batches(1000))[P0]
        await (await producer.send_batch("copy", fetched.records, partition=0))
    assert copy.values() == [b"old" * 100, b"new" * 100]
    assert read_header(copy.batches[0]).codec == Codec.LZ4


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@on_virtual_time
async def test_batch_above_the_topics_limit_is_sent_in_parts(codec: Codec) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.max_batch_bytes = 100
    values = [b"%03d" % number for number in range(40)]
    async with a_producer(cluster) as producer:
        future = await producer.send_batch("t", batch_of(*values, codec=codec), partition=0)
        assert (await future).offset == 39
    assert partition.values() == values
    assert len(partition.batches) > 1


def undecodable() -> bytes:
    """Return a batch with two records by its header and none by its bytes, with a right CRC."""
    draft = bytearray(batch_of(b"a", b"b"))
    draft[HEADER.size :] = b"\xff" * (len(draft) - HEADER.size)
    seal(draft, 0, len(draft))
    return bytes(draft)


@on_virtual_time
async def test_one_that_cannot_be_parted_fails_alone() -> None:
    cluster = FakeCluster(brokers=1)
    refuses, takes = cluster.create("t", 2)
    refuses.max_batch_bytes, takes.first_offset = 70, 7
    async with a_producer(cluster) as producer:
        bad = await producer.send_batch("t", undecodable(), partition=0)
        good = await producer.send("t", b"good", partition=1)
        assert (await good).offset == 7
        with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes is 70"):
            await bad
        assert not bad.may_be_stored()
        assert len(cluster.sent(ProduceRequest)) == 1
        assert [queue.in_flight for queue in producer.sender.accumulator.topics["t"].partitions] == [False, False]
        assert [(await producer.send_and_wait("t", b"x", partition=each)).offset for each in (0, 1)] == [0, 8]
    first, second = map(read_header, takes.batches)
    assert second.base_sequence == first.base_sequence + 1


@on_virtual_time
async def test_batch_whose_bytes_are_gone_before_it_is_sent_fails_alone() -> None:
    cluster = FakeCluster(brokers=1)
    cluster.create("t", 3)
    async with a_producer(cluster) as producer:
        before = await producer.send("t", b"v", partition=0)
        view = memoryview(batch_of(b"a", b"b"))
        bad = await producer.send_batch("t", view, partition=1)
        view.release()
        behind = await producer.send("t", b"v", partition=1)
        after = await producer.send("t", b"v", partition=2)
        await producer.flush(5)
        assert [(await future).offset for future in (before, behind, after)] == [0, 0, 0]
        assert bad.failed() and not bad.may_be_stored()


@on_virtual_time
async def test_two_records_that_compressing_made_larger_are_still_parted() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.max_batch_bytes = 75
    async with a_producer(cluster) as producer:
        await producer.send_batch("t", batch_of(b"a", b"b", codec=Codec.GZIP), partition=0)
        await producer.flush()
    assert partition.values() == [b"a", b"b"]


def logged() -> bytes:
    draft = bytearray(batch_of(b"a"))
    stamp_log_append_time(draft, 0, 77)
    return bytes(draft)


def flipped() -> bytes:
    draft = bytearray(batch_of(b"a"))
    draft[-1] ^= 1
    return bytes(draft)


@pytest.mark.parametrize(
    ("batch", "refusal"),
    [
        (b"", CorruptMessageError),
        (flipped(), CorruptMessageError),
        (batch_of(b"a")[:-1], CorruptMessageError),
        (batch_of(b"a") + b"x", CorruptMessageError),
        (batch_of(b"a") + batch_of(b"b"), CorruptMessageError),
        (encode_batch([]), InvalidRecordError),
        (altered(last_offset_delta=7), InvalidRecordError),
        (altered(attributes=0x10), InvalidRecordError),
        (logged(), InvalidRecordError),
        (altered(attributes=0x20), InvalidRecordError),
        (batch_of(b"x" * 5000), MessageTooLargeError),
    ],
)
@on_virtual_time
async def test_batch_that_no_producer_may_send_is_rejected_at_once(batch: bytes, refusal: type[Exception]) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster, max_request_size=4000) as producer:
        with pytest.raises(refusal):
            await producer.send_batch("t", batch, partition=0)
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send_batch("t", batch_of(b"a"), partition=1)
    assert partition.batches == []


@on_virtual_time
async def test_batch_waits_for_space_like_a_record() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster, buffer_memory=100, max_block_ms=50) as producer:
        await producer.send_and_wait("t", b"warm")
        cluster.fault_of = lambda broker, request: Fault.LOSE_ANSWER if isinstance(request, ProduceRequest) else None
        await producer.send_batch("t", batch_of(b"a" * 100), partition=0)
        with pytest.raises(BufferExhaustedError):
            await producer.send_batch("t", batch_of(b"b"), partition=0)
        waiting = asyncio.create_task(producer.send_batch("t", batch_of(b"c"), partition=0))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        cluster.fault_of = lambda broker, request: None
        with pytest.raises(BufferExhaustedError):
            await waiting
    assert partition.values() == [b"warm", b"a" * 100]


def test_the_synchronous_producer_sends_them_too() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    with in_memory(Producer, cluster, buffer_memory=1000) as producer:
        futures = [producer.send_batch("t", batch_of(b"%d" % number * 300), partition=0) for number in range(20)]
        assert [future.get(10).offset for future in futures] == list(range(20))
        with pytest.raises(CorruptMessageError):
            producer.send_batch("t", b"nonsense", partition=0)
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send_batch("t", batch_of(b"a"), partition=1)
    assert partition.values() == [b"%d" % number * 300 for number in range(20)]

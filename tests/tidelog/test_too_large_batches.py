"""Test the producer with batches that the broker rejects because of their size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.tidelog.test_producer import a_producer
from tests.virtual_time import on_virtual_time
from tidelog.errors import BrokerError, MessageTooLargeError, RecordListTooLargeError
from tidelog.protocol.messages import InitProducerIdRequest, ProduceRequest, Request
from tidelog.records.encode import single_record_bytes
from tidelog.records.header import read_header


@pytest.mark.parametrize("refusal", [MessageTooLargeError, RecordListTooLargeError])
@on_virtual_time
async def test_batch_rejected_for_its_size_arrives_in_smaller_ones(refusal: type[BrokerError]) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.max_batch_bytes, partition.too_large, partition.crowded = 1000, refusal, True
    async with a_producer(cluster) as producer:
        futures = [await producer.send("t", b"%0100d" % number) for number in range(100)]
        await producer.flush()
        assert all(future.succeeded() for future in futures)
    assert partition.values() == [b"%0100d" % number for number in range(100)]
    records = partition.records()
    assert [records[(await future).offset].value for future in futures] == partition.values()
    assert max(map(len, partition.batches)) <= 1000
    sequences = [header.base_sequence for header in map(read_header, partition.batches) if header.producer_id >= 0]
    assert len(sequences) > 10  # the broker itself rejects a gap
    assert len(cluster.sent(InitProducerIdRequest)) == 1


@on_virtual_time
async def test_record_that_is_too_large_fails_alone_with_the_brokers_message() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.max_batch_bytes = 1000
    called: list[Any] = []
    async with a_producer(cluster) as producer:
        good = await producer.send("t", b"good")
        bad = await producer.send("t", b"x" * 2000)
        last = await producer.send("t", b"last")
        for future in (good, bad, last):
            future.add_callback(lambda place: called.append(place.offset)).add_errback(lambda e: called.append(str(e)))
        await producer.flush()
        called.append("flushed")
        await producer.send_and_wait("t", b"later")
    refused = f"a batch of {single_record_bytes(None, b'x' * 2000)} bytes; max.message.bytes is 1000"
    assert called == [0, refused, 1, "flushed"]
    assert partition.values() == [b"good", b"last", b"later"]
    assert len(cluster.sent(InitProducerIdRequest)) == 1


@on_virtual_time
async def test_batch_rejected_after_a_lost_answer_is_split_too() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.max_batch_bytes = 200
    faults = iter([Fault.LOSE_ANSWER])
    cluster.fault_of = lambda broker, request: next(faults, None) if isinstance(request, ProduceRequest) else None
    async with a_producer(cluster) as producer:
        for number in range(20):
            await producer.send("t", b"%020d" % number)
        await producer.flush()
    assert partition.values() == [b"%020d" % number for number in range(20)]


@on_virtual_time
async def test_rejection_is_not_reported_without_acks() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.max_batch_bytes = 200
    async with a_producer(cluster, acks=0, enable_idempotence=False) as producer:
        futures = [await producer.send("t", b"%020d" % number) for number in range(20)]
        assert (await futures[0]).offset == -1
        await asyncio.sleep(1)
    assert partition.values() == [] and partition.produces == 1


_FAULTS = [fault for fault in Fault if fault is not Fault.FORGET_PRODUCERS]


@settings(max_examples=150)
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=60),
    limit=st.integers(75, 1200),
    crowded=st.booleans(),
    codec=st.sampled_from([None, "gzip"]),
    idempotent=st.booleans(),
    faults=st.lists(st.none() | st.sampled_from(_FAULTS), max_size=10),
)
@on_virtual_time
async def test_fitting_records_arrive_once_in_order_and_others_fail_alone(
    sizes: list[int], limit: int, crowded: bool, codec: str | None, idempotent: bool, faults: list[Fault | None]
) -> None:
    """The simple model: each record is sent alone. Without idempotence nothing else goes wrong."""
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.max_batch_bytes, partition.crowded = limit, crowded
    schedule = iter(faults if idempotent else [])
    values = [(b"%d," % number) * size for number, size in enumerate(sizes)]

    def fault_of(broker: int, request: Request) -> Fault | None:
        return next(schedule, None) if isinstance(request, ProduceRequest) else None

    cluster.fault_of = fault_of
    options = {"compression_type": codec, "enable_idempotence": idempotent, "request_timeout_ms": 1500}
    async with a_producer(cluster, batch_size=4096, **options) as producer:
        futures = [await producer.send("t", value) for value in values]
        called: list[int] = []
        for number, future in enumerate(futures):
            future.add_callback(lambda number, _: called.append(number), number)
            future.add_errback(lambda number, _: called.append(number), number)
        await producer.flush()
        assert sorted(called) == list(range(len(values)))
        assert producer.sender.accumulator.buffered_bytes == 0
        taken = [value for value, future in zip(values, futures, strict=True) if future.succeeded()]
        for value, future in zip(values, futures, strict=True):
            alone = single_record_bytes(None, value)
            error = future.exception()
            assert isinstance(error, MessageTooLargeError) if error else codec or alone <= limit
            assert error is None or codec or alone > limit
            if error is None and (await future).offset >= 0:
                assert partition.records()[(await future).offset].value == value
    await asyncio.sleep(10)  # delayed requests have arrived by now
    assert partition.values() == taken

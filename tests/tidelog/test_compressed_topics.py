"""Test compressing producers and consumers over brokers that do not decompress."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tidelog.clients import in_memory
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.aio import Consumer, Producer
from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord
from tidelog.errors import (
    BrokerError,
    ConfigError,
    CorruptMessageError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from tidelog.model import TopicPartition
from tidelog.records import Codec, MarkerKind, compress, encode_batch, encode_control_batch, read_header
from tidelog.records.header import HEADER, HEADER_BYTES, seal

P0 = TopicPartition("t", 0)
LINE = b"one line much like the next "


def a_producer(cluster: FakeCluster, **options: Any) -> Producer:
    return in_memory(Producer, cluster, clock=VirtualClock(), **options)


def a_consumer(cluster: FakeCluster, **options: Any) -> Consumer:
    options = {"auto_offset_reset": "earliest", "max_poll_records": 10_000, **options}
    return in_memory(Consumer, cluster, clock=VirtualClock(), **options)


async def read_all(cluster: FakeCluster, count: int) -> list[ConsumerRecord]:
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        found: list[ConsumerRecord] = []
        while len(found) < count:
            polled = await consumer.poll(5_000)
            assert polled, f"only {len(found)} of {count} came"
            found += polled[P0]
    return found


@pytest.mark.parametrize("compression_type", [None, "none", "gzip", "snappy", "lz4", "zstd"])
@on_virtual_time
async def test_records_produced_with_a_codec_are_consumed(compression_type: str | None) -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    async with a_producer(cluster, compression_type=compression_type, linger_ms=5) as producer:
        for number in range(1000):
            await producer.send("t", LINE + b"%d" % number, key=b"k", headers=[("h", b"x")], timestamp_ms=number)
    codec = Codec[(compression_type or "none").upper()]
    assert {read_header(batch).codec for batch in partition.batches} == {codec}
    sent = sum(map(len, partition.batches))
    assert sent < 1000 * len(LINE) / 2 if codec else sent > 1000 * len(LINE)
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in await read_all(cluster, 1000)] == [
        (number, number, b"k", LINE + b"%d" % number, (("h", b"x"),)) for number in range(1000)
    ]


@on_virtual_time
async def test_one_partition_may_hold_every_codec_and_markers_between_them() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    for codec in Codec:
        partition.append(encode_batch([(5, None, codec.name.encode(), ()), (6, None, b"", ())], codec=codec))
        partition.append(
            encode_control_batch(
                MarkerKind.COMMIT, producer_id=-1, producer_epoch=-1, coordinator_epoch=0, timestamp_ms=7
            )
        )
    found = await read_all(cluster, 10)
    assert [record.offset for record in found] == [0, 1, 3, 4, 6, 7, 9, 10, 12, 13]
    assert [record.value for record in found[::2]] == [codec.name.encode() for codec in Codec]


@on_virtual_time
async def test_batch_size_limits_the_bytes_before_compression() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    async with a_producer(cluster, compression_type="zstd", batch_size=4096, linger_ms=5) as producer:
        for _ in range(1000):
            await producer.send("t", LINE)
    assert all(read_header(batch).record_count <= 4096 // len(LINE) for batch in partition.batches)
    assert len(await read_all(cluster, 1000)) == 1000


@pytest.mark.parametrize("wrong", ["brotli", "GZIP", "", 1, b"gzip", ["gzip"], True, Codec.GZIP])
def test_a_codec_that_does_not_exist_is_refused_with_those_that_do(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"compression_type must be None or one of .*'zstd'"):
        Producer("h:1", compression_type=wrong)


def with_block(attributes: int, block: bytes) -> bytes:
    """Return a batch of two records with a right CRC around this block."""
    batch = bytearray(encode_batch([(5, None, b"a", ()), (6, None, b"b", ())])[:HEADER_BYTES] + block)
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(attributes=attributes, batch_length=len(batch) - 12))
    seal(batch, 0, len(batch))
    return bytes(batch)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        pytest.param(with_block(Codec.GZIP, b"not gzip"), CorruptMessageError, id="no gzip"),
        pytest.param(with_block(Codec.ZSTD, compress(Codec.ZSTD, b"no records")), CorruptMessageError, id="no records"),
        pytest.param(with_block(6, b"from the future"), UnsupportedCompressionTypeError, id="unknown codec"),
    ],
)
@on_virtual_time
async def test_a_batch_that_cannot_be_read_holds_the_reader_until_it_seeks_past(
    batch: bytes, error: type[BrokerError]
) -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    partition.append(encode_batch([(5, None, b"before", ())], codec=Codec.LZ4))
    partition.append(batch)
    partition.append(encode_batch([(5, None, b"behind", ())], codec=Codec.LZ4))
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        assert [record.value for record in (await consumer.poll(5_000))[P0]] == [b"before"]
        for _ in range(3):
            with pytest.raises(error, match="t-0: the batch of offsets 1 to 2 cannot be read"):
                await consumer.poll(5_000)
            assert await consumer.position(P0) == 1
        consumer.seek(P0, 3)
        assert [record.value for record in (await consumer.poll(5_000))[P0]] == [b"behind"]


@on_virtual_time
async def test_batch_above_the_readers_decompression_limit_names_the_setting() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    partition.append(encode_batch([(5, None, bytes(10_000), ())], codec=Codec.ZSTD))
    async with a_consumer(cluster, max_decompressed_batch_bytes=10_000) as consumer:
        consumer.assign([P0])
        with pytest.raises(MessageTooLargeError, match=r"offsets 0 to 0 .*10000 bytes .*max_decompressed_batch_bytes"):
            await consumer.poll(5_000)
    async with a_consumer(cluster, max_decompressed_batch_bytes=11_000) as consumer:
        consumer.assign([P0])
        assert [record.value for record in (await consumer.poll(5_000))[P0]] == [bytes(10_000)]

"""Spark reads compressed batches as it reads others."""

from __future__ import annotations

from typing import cast

import pytest
from file_cluster import FileCluster, FileConsumer, HandClock, OneConsumer

from tidelog import Consumer
from tidelog.arrow.offset_range import OffsetRange
from tidelog.errors import CorruptMessageError, MessageTooLargeError
from tidelog.model import TopicPartition
from tidelog.records import Codec, MarkerKind, encode_batch, encode_control_batch, read_header
from tidelog.records.header import HEADER, seal
from tidelog.spark.columns import kafka_schema
from tidelog.spark.options import Use, parse_read
from tidelog.spark.range_reader import RangeReader

T0 = TopicPartition("t", 0)


def values(cluster: FileCluster, start: int, until: int, **settings: int) -> list[tuple[int, bytes]]:
    consumer = FileConsumer(cluster)
    subscribed = {"tidelog.bootstrap.servers": "h:1", "subscribe": "t"}
    given = {f"tidelog.{name.replace('_', '.')}": str(value) for name, value in settings.items()}
    options = parse_read(subscribed | given, Use.BATCH_READ)
    reader = RangeReader.of(options, OneConsumer(only=consumer), kafka_schema(include_headers=False))
    rows = reader.read_with(cast(Consumer, consumer), OffsetRange(T0, start, until), HandClock())
    return [(row["offset"], row["value"]) for batch in rows for row in batch.to_pylist()]


def test_every_codec_is_read_with_markers_in_between(cluster: FileCluster) -> None:
    cluster.create_topic("t", 1)
    expected = []
    offset = 0
    for codec in Codec:
        rows = [(1000, None, b"%s %d" % (codec.name.encode(), number), ()) for number in range(100)]
        cluster.append_batch(T0, encode_batch(rows, base_offset=offset, codec=codec))
        expected += [(offset + number, value) for number, (_, _, value, _) in enumerate(rows)]
        cluster.append_batch(
            T0,
            encode_control_batch(
                MarkerKind.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5,
                base_offset=offset + 100,
            ),
        )  # fmt: skip
        offset += 101
    assert values(cluster, 0, offset) == expected
    assert values(cluster, 150, 420) == [row for row in expected if 150 <= row[0] < 420]


def test_undecodable_block_fails_the_task(cluster: FileCluster) -> None:
    cluster.create_topic("t", 1)
    batch = bytearray(encode_batch([(1000, None, b"plain", ())]))
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(attributes=Codec.ZSTD))
    seal(batch, 0, len(batch))
    cluster.append_batch(T0, bytes(batch))
    with pytest.raises(CorruptMessageError, match="zstd"):
        values(cluster, 0, 1)


def test_oversized_batch_fails_the_task_and_names_the_option(
    cluster: FileCluster,
) -> None:
    cluster.create_topic("t", 1)
    batch = encode_batch([(1000, None, bytes(10_000), ())], codec=Codec.ZSTD)
    cluster.append_batch(T0, batch)
    with pytest.raises(
        MessageTooLargeError, match=r"t-0 \[0, 1\): .*10000 bytes .*tidelog\.max\.decompressed\.batch\.bytes"
    ):
        values(cluster, 0, 1, max_decompressed_batch_bytes=10_000)
    assert values(cluster, 0, 1, max_decompressed_batch_bytes=11_000) == [(0, bytes(10_000))]

"""Test `Consumer.poll_arrow` against `poll`, which decodes record by record, with brokers in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelog
from tests.tidelog.arrow_topics import WrittenBatch, a_topic, batches
from tests.tidelog.clients import a_consumer, in_memory, put
from tests.tidelog.fake_cluster import FakeCluster
from tests.tidelog.fetched_batches import control_batch, unreadable_batch
from tests.virtual_time import on_virtual_time
from tidelog.aio import Consumer
from tidelog.arrow.schema import DEFAULT_COLUMNS, SCHEMA
from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord
from tidelog.errors import ArgumentValueError, CorruptMessageError
from tidelog.model import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def row_of(record: ConsumerRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp == -1 else record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": record.key,
        "value": record.value,
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
    }


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    place = table.schema.get_field_index("timestamp")
    return table.set_column(place, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()


async def poll_all(consumer: Consumer) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while polled := await consumer.poll(600):
        rows += [row_of(record) for each in polled.values() for record in each]
    return rows


async def poll_all_arrow(consumer: Consumer, columns: Sequence[str] = SCHEMA.names) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while (table := await consumer.poll_arrow(600, columns=columns)).num_rows:
        table.validate(full=True)
        rows += rows_of(table)
    return rows


def of_partition(rows: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["partition"] == number]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(batches, max_size=5), min_size=2, max_size=2),
    st.tuples(st.integers(0, 15), st.integers(0, 15)),
    st.integers(0, 5),
)
@on_virtual_time
async def test_polled_columns_are_those_of_the_polled_records(
    written: list[list[WrittenBatch]], starts: tuple[int, int], taken_before: int
) -> None:
    """The position may be inside a batch, and records may have been polled one by one before."""
    cluster = a_topic(written)
    found = []
    for read in (poll_all, poll_all_arrow):
        async with a_consumer(cluster, max_partition_fetch_bytes=400) as consumer:
            consumer.assign([P0, P1])
            for tp, start in zip((P0, P1), starts, strict=True):
                consumer.seek(tp, min(start, cluster.partitions["t"][tp.partition].end_offset))
            first: list[dict[str, Any]] = []
            if taken_before:
                polled = await consumer.poll(600, max_records=taken_before)
                first = [row_of(record) for each in polled.values() for record in each]
            rows = first + await read(consumer)
            found.append(([of_partition(rows, 0), of_partition(rows, 1)], [await consumer.position(P0, 100)]))
    assert found[1] == found[0]


@on_virtual_time
async def test_poll_without_records_returns_an_empty_table_of_default_columns() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        table = await consumer.poll_arrow(10)
    assert table.num_rows == 0 and table.schema.names == list(DEFAULT_COLUMNS)


@on_virtual_time
async def test_headers_are_a_column_only_if_they_are_asked_for() -> None:
    cluster = FakeCluster()
    put(cluster.create("t")[0], b"v")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        table = await consumer.poll_arrow(1000, columns=["value"], headers=True)
        assert table.schema.names == ["value", "headers"] and table.num_rows == 1
        with pytest.raises(ArgumentValueError, match="no column 'header'; did you mean headers"):
            await consumer.poll_arrow(columns=["header"])


@on_virtual_time
async def test_polled_columns_leave_out_paused_partitions_and_control_batches() -> None:
    cluster = FakeCluster()
    first, second = cluster.create("t", 2)
    put(first, b"paused")
    second.batches.append(bytes(control_batch(0, epoch=0)))
    put(second, b"v")
    async with a_consumer(cluster, max_partition_fetch_bytes=1) as consumer:
        consumer.assign([P0, P1])
        consumer.pause(P0)
        assert (await consumer.poll_arrow(1000))["value"].to_pylist() == [b"v"]
        consumer.resume(P0)
        assert (await consumer.poll_arrow(1000))["value"].to_pylist() == [b"paused"]
        assert await consumer.position(P1) == 2


@on_virtual_time
async def test_unreadable_batch_ends_the_columns_and_is_the_next_error() -> None:
    cluster = FakeCluster()
    first, second = cluster.create("t", 2)
    put(first, b"0", b"1")
    first.batches.append(bytes(unreadable_batch(2, epoch=0)))
    put(second, b"other")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        assert (await consumer.poll_arrow(1000))["value"].to_pylist() == [b"0", b"1"]
        assert await consumer.position(P0) == 2
        for _ in range(2):
            with pytest.raises(CorruptMessageError, match="t-0: the batch of offsets 2 to 2 cannot be read"):
                await consumer.poll_arrow(1000)
        with pytest.raises(CorruptMessageError, match="t-0: the batch of offsets 2 to 2"):
            await consumer.poll(1000)
        consumer.assign([P0, P1])
        assert (await consumer.poll_arrow(1000))["value"].to_pylist() == [b"other"]
        consumer.seek(P0, 0)
        assert (await consumer.poll_arrow(1000))["value"].to_pylist() == [b"0", b"1"]


@on_virtual_time
async def test_unreadable_first_batch_is_raised_at_once() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    partition.batches.append(bytes(unreadable_batch(0, epoch=0)))
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        with pytest.raises(CorruptMessageError, match="t-0: the batch of offsets 0 to 0"):
            await consumer.poll_arrow(60_000)
        assert await consumer.position(P0) == 0


def test_polars_takes_the_table_of_a_synchronous_consumer() -> None:
    cluster = FakeCluster()
    put(cluster.create("t")[0], b"a", b"b", at_ms=5)
    with in_memory(tidelog.Consumer, cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([P0])
        frame = polars.DataFrame(consumer.poll_arrow(5000, columns=["offset", "value"]))
        assert frame.rows() == [(0, b"a"), (1, b"b")]
        assert consumer.position(P0) == 2

"""Spark reads and writes topics of each kind of cluster: batches, streams, positions by offset and by time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from micro_batches import DEADLINE_S, Batches, run, wait_until
from pyspark.sql import SparkSession

from tests.any_kafka.clusters import AnyCluster
from tidelog import Consumer, Producer, TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

T0 = 1_700_000_000_000


def source(brokers: AnyCluster, tps: list[TopicPartition], **more: str) -> dict[str, str]:
    servers = brokers.bootstrap_servers
    return {"tidelog.bootstrap.servers": servers, "subscribe": tps[0].topic, "startingOffsets": "earliest"} | more


def write(brokers: AnyCluster, tp: TopicPartition, values: Iterable[str], first_ms: int = T0) -> None:
    """Write the values one second apart, from `first_ms` on, each with the header h."""
    with Producer(bootstrap_servers=brokers.bootstrap_servers, compression_type="zstd") as producer:
        for number, value in enumerate(values):
            producer.send(
                tp.topic,
                value.encode(),
                key=b"k" if number % 2 else None,
                headers=[("h", b"1")],
                partition=tp.partition,
                timestamp_ms=first_ms + 1000 * number,
            )


def read(brokers: AnyCluster, tp: TopicPartition, count: int) -> list[bytes | None]:
    servers = brokers.bootstrap_servers
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000) as consumer:
        consumer.assign([tp])
        return [record.value for record, _ in zip(consumer, range(count), strict=False)]


def test_batch_reads_each_record_once_with_all_columns(spark: SparkSession, brokers: AnyCluster) -> None:
    tps = brokers.create_topic(2)
    write(brokers, tps[0], map(str, range(500)))
    write(brokers, tps[1], map(str, range(500, 1000)))
    options = source(brokers, tps, includeHeaders="true", minPartitions="4")
    frame = spark.read.format("tidelog").options(**options).load()
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [(each, at) for each in (0, 1) for at in range(500)]
    assert [row.value for row in rows] == [str(number).encode() for number in range(1000)]
    second = rows[1]
    assert (second.key, second.topic, second.timestampType) == (b"k", tps[0].topic, 0)
    assert [(each.key, each.value) for each in second.headers] == [("h", b"1")]
    assert second.timestamp.timestamp() * 1000 == T0 + 1000
    assert rows[0].key is None


def test_batch_reads_between_offsets_and_between_times(spark: SparkSession, brokers: AnyCluster) -> None:
    tps = brokers.create_topic(1)
    write(brokers, tps[0], map(str, range(10)))
    named = tps[0].topic
    offsets = source(
        brokers, tps, startingOffsets=f'{{"{named}": {{"0": 2}}}}', endingOffsets=f'{{"{named}": {{"0": 5}}}}'
    )
    by_offset = spark.read.format("tidelog").options(**offsets).load()
    assert sorted(row.value for row in by_offset.collect()) == [b"2", b"3", b"4"]
    times = source(brokers, tps, startingTimestamp=str(T0 + 2500), endingTimestamp=str(T0 + 6000))
    del times["startingOffsets"]
    by_time = spark.read.format("tidelog").options(**times).load()
    assert sorted(row.value for row in by_time.collect()) == [b"3", b"4", b"5"]


def test_batch_is_written_and_read_by_a_client(spark: SparkSession, brokers: AnyCluster) -> None:
    (tp,) = brokers.create_topic(1)
    rows = spark.range(1_000).selectExpr("cast(id as string) value", "0 as partition")
    sink = {"tidelog.bootstrap.servers": brokers.bootstrap_servers, "topic": tp.topic}
    rows.write.format("tidelog").options(**sink).mode("append").save()
    assert sorted(read(brokers, tp, 1_000)) == sorted(str(number).encode() for number in range(1_000))


def test_stream_goes_on_from_its_checkpoint(spark: SparkSession, brokers: AnyCluster, tmp_path: Path) -> None:
    tps = brokers.create_topic(2)
    seen: list[str] = []
    for round_ in range(2):
        for tp in tps:
            write(brokers, tp, [f"{tp.partition}-{round_}-{number}" for number in range(30)])
        batches = Batches()
        options = source(brokers, tps, maxOffsetsPerTrigger="25")
        frame = spark.readStream.format("tidelog").options(**options).load()
        query = run(frame, tmp_path / "checkpoint", batches, availableNow=True)
        assert query.awaitTermination(DEADLINE_S)
        assert max(map(len, batches.values.values())) <= 25
        seen += batches.all
    wanted = [f"{each}-{round_}-{number}" for each in (0, 1) for round_ in (0, 1) for number in range(30)]
    assert sorted(seen) == sorted(wanted)


def test_stream_begins_at_a_time_and_follows(spark: SparkSession, brokers: AnyCluster, tmp_path: Path) -> None:
    tps = brokers.create_topic(1)
    write(brokers, tps[0], ["old", "from here", "next"])
    options = source(brokers, tps, startingTimestamp=str(T0 + 1000))
    del options["startingOffsets"]
    seen = Batches()
    query = run(spark.readStream.format("tidelog").options(**options).load(), tmp_path / "checkpoint", seen)
    try:
        wait_until(lambda: seen.all == ["from here", "next"], query)
        write(brokers, tps[0], ["new"], first_ms=T0 + 9000)
        wait_until(lambda: seen.all == ["from here", "new", "next"], query)
    finally:
        query.stop()


def test_stream_is_written_to_another_topic(spark: SparkSession, brokers: AnyCluster, tmp_path: Path) -> None:
    tps, (copy,) = brokers.create_topic(1), brokers.create_topic(1)
    write(brokers, tps[0], ["a", "b", "c"])
    frame = spark.readStream.format("tidelog").options(**source(brokers, tps)).load()
    sink = {"tidelog.bootstrap.servers": brokers.bootstrap_servers, "topic": copy.topic}
    writer = frame.selectExpr("key", "value", "0 as partition").writeStream.format("tidelog").options(**sink)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    assert read(brokers, copy, 3) == [b"a", b"b", b"c"]

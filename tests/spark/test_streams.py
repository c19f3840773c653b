"""Real Spark over a cluster that is a directory: batches, streams, triggers, restarts and writes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from file_cluster import FileCluster
from micro_batches import DEADLINE_S, Batches, run, wait_until
from pyspark.sql import DataFrame, SparkSession

from tidelog.model import TopicPartition

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]  # all tests share one Spark session

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(autouse=True)
def topic(cluster: FileCluster) -> None:
    cluster.create_topic("t", 2)


def options(cluster: FileCluster, **more: str) -> dict[str, str]:
    where = {"tidelog.bootstrap.servers": "localhost:1", "tidelog.client.id": str(cluster.directory)}
    return where | {"subscribe": "t", "startingOffsets": "earliest"} | more


def stream(spark: SparkSession, cluster: FileCluster, **more: str) -> DataFrame:
    return spark.readStream.format("tidelog-file").options(**options(cluster, **more)).load()


def test_a_batch_read_sees_kafkas_schema_and_every_record(spark: SparkSession, cluster: FileCluster) -> None:
    cluster.append(T0, [(1_000, b"k", b"a", [("h", b"1")]), (2_000, None, None, ())])
    cluster.append_values(T1, map(str, range(25_000)))
    frame = (
        spark.read.format("tidelog-file").options(**options(cluster, includeHeaders="true", minPartitions="5")).load()
    )
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert frame.count() == 25_002
    assert frame.rdd.getNumPartitions() >= 5
    rows = frame.where("partition = 0").orderBy("offset").collect()
    assert [(row.key, row.value, row.timestamp.timestamp(), row.headers) for row in rows] == [
        (b"k", b"a", 1.0, [(("h"), b"1")]),
        (None, None, 2.0, None),
    ]
    [sums] = frame.where("partition = 1").selectExpr("sum(offset) as offsets").collect()
    assert sums.offsets == sum(range(25_000))


def test_a_batch_read_between_times_and_with_a_users_schema(spark: SparkSession, cluster: FileCluster) -> None:
    for second in range(1, 10):
        cluster.append_values(T0, [f"at {second}"], timestamp_ms=second * 1000)
    between = options(cluster, startingTimestamp="3000", endingTimestamp="6000", subscribe="", assign='{"t": [0]}')
    del between["subscribe"]
    frame = spark.read.format("tidelog-file").schema("value binary, offset bigint").options(**between).load()
    assert [(row.value, row.offset) for row in frame.collect()] == [(b"at 3", 2), (b"at 4", 3), (b"at 5", 4)]


def test_an_empty_topic_reads_as_no_rows(spark: SparkSession, cluster: FileCluster) -> None:
    assert spark.read.format("tidelog-file").options(**options(cluster)).load().count() == 0


def test_a_mistaken_option_is_named_to_the_user(spark: SparkSession, cluster: FileCluster) -> None:
    with pytest.raises(Exception, match="did you mean maxOffsetsPerTrigger"):
        stream(spark, cluster, maxOffsetPerTriger="5").writeStream.format("noop").start().awaitTermination(DEADLINE_S)


def test_a_stream_follows_the_topic(spark: SparkSession, cluster: FileCluster, tmp_path: Path) -> None:
    cluster.append_values(T0, ["old"])
    seen = Batches()
    query = run(stream(spark, cluster, startingOffsets="latest"), tmp_path / "checkpoint", seen)
    wait_until(lambda: 0 in seen.values, query)
    cluster.append_values(T1, ["new"])
    wait_until(lambda: seen.all == ["new"], query)
    query.stop()
    assert seen.values[0] == []


@pytest.mark.slow
def test_trap_2_with_real_spark_crash_in_batch_0_loses_nothing(
    spark: SparkSession, cluster: FileCluster, tmp_path: Path
) -> None:
    def crash(frame: DataFrame, batch: int) -> None:
        raise RuntimeError("killed before the commit")

    crashed = run(stream(spark, cluster, startingOffsets="latest"), tmp_path / "checkpoint", crash)
    with pytest.raises(Exception, match="killed before the commit"):
        crashed.awaitTermination(DEADLINE_S)
    assert (tmp_path / "checkpoint" / "offsets" / "0").exists()
    assert not (tmp_path / "checkpoint" / "commits" / "0").exists()
    cluster.append_values(T0, ["while it was down"])

    seen = Batches()
    query = run(stream(spark, cluster, startingOffsets="latest"), tmp_path / "checkpoint", seen)
    wait_until(lambda: seen.all == ["while it was down"], query)
    query.stop()


@pytest.mark.slow
def test_trap_3_with_real_spark_available_now_reads_all_and_stops(
    spark: SparkSession, cluster: FileCluster, tmp_path: Path
) -> None:
    cluster.append_values(T0, [f"{n:03}" for n in range(10)])
    seen = Batches()
    query = run(stream(spark, cluster, maxOffsetsPerTrigger="4"), tmp_path / "c", seen, availableNow=True)
    assert query.awaitTermination(DEADLINE_S)
    assert seen.all == [f"{n:03}" for n in range(10)]
    assert [len(values) for values in seen.values.values()] == [0, 4, 4, 2]

    cluster.append_values(T1, ["later"])
    again = Batches()
    query = run(stream(spark, cluster, maxOffsetsPerTrigger="4"), tmp_path / "c", again, availableNow=True)
    assert query.awaitTermination(DEADLINE_S)
    assert again.all == ["later"]


@pytest.mark.slow
def test_trap_2_with_real_spark_trigger_once_reads_all_in_one_batch(
    spark: SparkSession, cluster: FileCluster, tmp_path: Path
) -> None:
    cluster.append_values(T0, map(str, range(10)))
    seen = Batches()
    query = run(stream(spark, cluster, maxOffsetsPerTrigger="4"), tmp_path / "c", seen, once=True)
    assert query.awaitTermination(DEADLINE_S)
    assert [len(values) for values in seen.values.values()] == [10]


@pytest.mark.slow
def test_trap_5_with_real_spark_idle_query_waits_and_stops_at_once(
    spark: SparkSession, cluster: FileCluster, tmp_path: Path
) -> None:
    seen = Batches()
    query = run(stream(spark, cluster), tmp_path / "c", seen)
    wait_until(lambda: 0 in seen.values, query)
    wait_until(lambda: query.lastProgress is not None and query.lastProgress["numInputRows"] == 0, query)
    asked = cluster.questions("end_offsets")
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 1, query)
    assert cluster.questions("end_offsets") - asked < 80
    query.stop()
    assert time.monotonic() - began < 5


@pytest.mark.slow
def test_a_restart_from_the_checkpoint_reads_each_record_once(
    spark: SparkSession, cluster: FileCluster, tmp_path: Path
) -> None:
    seen = []
    for round_ in range(3):
        cluster.append_values(T0, [f"{round_}-{n}" for n in range(50)])
        batches = Batches()
        query = run(stream(spark, cluster, maxOffsetsPerTrigger="20"), tmp_path / "c", batches, availableNow=True)
        assert query.awaitTermination(DEADLINE_S)
        seen += batches.all
    assert seen == sorted(value.decode() for value in cluster.values(T0) if value)


@pytest.mark.slow
def test_trap_9_with_real_spark_truncated_log_is_read_on_if_allowed(
    spark: SparkSession, cluster: FileCluster, tmp_path: Path
) -> None:
    cluster.append_values(T0, ["a", "b", "c"])
    seen = Batches()
    query = run(stream(spark, cluster, failOnDataLoss="false"), tmp_path / "c", seen)
    wait_until(lambda: seen.all == ["a", "b", "c"], query)
    batches = len(seen.values)
    cluster.lose(T0)
    wait_until(lambda: len(seen.values) > batches, query)
    cluster.append_values(T0, ["new"])
    wait_until(lambda: seen.all == ["a", "b", "c", "new"], query)
    query.stop()


@pytest.mark.slow
def test_progress_shows_the_streams_offsets(spark: SparkSession, cluster: FileCluster, tmp_path: Path) -> None:
    cluster.append_values(T0, ["a", "b"])
    query = run(stream(spark, cluster), tmp_path / "c", Batches(), availableNow=True)
    assert query.awaitTermination(DEADLINE_S)
    assert query.lastProgress is not None
    [source] = query.lastProgress["sources"]
    assert json.loads(source["endOffset"]) == {"t": {"0": 2, "1": 0}}


@pytest.mark.slow
def test_batch_write_sends_keys_values_headers_and_partitions(spark: SparkSession, cluster: FileCluster) -> None:
    frame = spark.sql(
        "select 't' topic, 1 partition, 'k' key, cast('v' as binary) value, "
        "array(named_struct('key', 'h', 'value', cast('1' as binary))) headers union all "
        "select 't', 0, null, cast('w' as binary), null"
    )
    frame.write.format("tidelog-file").options(**sink(cluster)).mode("append").save()
    [record] = cluster.records(T1)
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"1"),))
    assert cluster.values(T0) == [b"w"]


def sink(cluster: FileCluster, **more: str) -> dict[str, str]:
    return {"tidelog.bootstrap.servers": "localhost:1", "tidelog.client.id": str(cluster.directory)} | more


def test_the_option_topic_overrides_the_column(spark: SparkSession, cluster: FileCluster) -> None:
    frame = spark.sql("select 'nowhere' topic, 'v' value")
    frame.write.format("tidelog-file").options(**sink(cluster, topic="t")).mode("append").save()
    assert cluster.values(T0) == [b"v"]


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("select 'k' key, 't' topic", "a column 'value'.* is required"),
        ("select 'v' value", "no topic:"),
        ("select 1 value, 't' topic", "column 'value' must be binary or string, not int"),
        ("select 'v' value, 't' topic, 5 colour", "no column 'colour' can be written"),
        ("select 'v' value, cast(null as string) topic", "a row has no topic"),
    ],
)
def test_rows_that_cannot_be_records_are_refused(
    spark: SparkSession, cluster: FileCluster, query: str, complaint: str
) -> None:
    with pytest.raises(Exception, match=complaint):
        spark.sql(query).write.format("tidelog-file").options(**sink(cluster)).mode("append").save()
    assert cluster.values(T0) == []


def test_a_log_cannot_be_overwritten(spark: SparkSession, cluster: FileCluster) -> None:
    with pytest.raises(Exception, match="a log cannot be overwritten"):
        frame = spark.sql("select 'v' value, 't' topic")
        frame.write.format("tidelog-file").options(**sink(cluster)).mode("overwrite").save()


@pytest.mark.slow
def test_a_stream_is_written_to_another_topic(spark: SparkSession, cluster: FileCluster, tmp_path: Path) -> None:
    [copy] = cluster.create_topic("copy", 1)
    cluster.append_values(T0, ["a", "b", "c"])
    frame = stream(spark, cluster).selectExpr("key", "value", "0 as partition")
    writer = frame.writeStream.format("tidelog-file").options(**sink(cluster, topic="copy"))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    assert cluster.values(copy) == [b"a", b"b", b"c"]


def test_the_source_is_found_by_its_name_alone(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="exactly one of subscribe, subscribePattern and assign"):
        spark.read.format("tidelog").option("tidelog.bootstrap.servers", "localhost:1").load().count()

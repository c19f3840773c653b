"""Spark's own Kafka source and sink: batches, AvailableNow, and micro-batches while a leader is killed."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from tests.clients.adapters import builds
from tests.clients.adapters.client_program import ProgramClient, ProgramProcess
from tests.clients.adapters.foreign_client import RefusedError
from tests.clients.cluster_under_test import ClusterUnderTest
from tests.processes.harness.waiting import wait_for
from tidelog import TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("clients")]  # all share one cluster

PARTITIONS = 3
HEADERS = [("trace", b"a1"), ("trace", b"a2")]
#: The first record's timestamp; each further one of a partition is a second later. Retention deletes old records.
FIRST_MS = time.time_ns() // 1_000_000 - 3_600_000

_numbers = count(1)


@pytest.fixture(scope="module")
def spark(servers: str) -> Iterator[ProgramProcess]:
    client = ProgramClient("spark", builds.SPARK_KAFKA_VERSION, builds.spark_program, servers, is_idempotent=True)
    yield client.start()
    client.stop()


@pytest.fixture
def topics(cluster: ClusterUnderTest) -> tuple[str, str]:
    """Return two new topics of three partitions."""
    number = next(_numbers)
    names = f"spark-from-{number}", f"spark-to-{number}"
    for name in names:
        cluster.create_topic(name, PARTITIONS)
    return names


def write(cluster: ClusterUnderTest, topic: str, first: int, last: int, codec: str = "none") -> None:
    """Write the records `first` to `last` - 1 to each partition; a record's key names its number."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
    producer = ck.Producer({**settings, "compression.type": codec})
    for number in range(first, last):
        for partition in range(PARTITIONS):
            value = None if number % 7 == 3 else b"value %d of %d" % (number, partition)
            producer.produce(
                topic, value, b"%d" % number, partition, timestamp=FIRST_MS + 1000 * number, headers=HEADERS
            )
    assert producer.flush(60) == 0


def read(cluster: ClusterUnderTest, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """Return key and value of all records of each partition, in their order."""
    consumer = ck.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"})
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for partition in range(PARTITIONS):
        start, end = consumer.get_watermark_offsets(ck.TopicPartition(topic, partition), timeout=30)
        consumer.assign([ck.TopicPartition(topic, partition, start)])
        found[partition] = []
        while len(found[partition]) < end - start:
            messages = consumer.consume(end - start - len(found[partition]), timeout=30)
            assert messages, f"{topic} [{partition}] has fewer records than its offsets"
            for each in messages:
                assert each.error() is None, each.error()
                found[partition].append((each.key(), each.value()))
    consumer.close()
    return found


def offsets(rows: list[dict[str, Any]]) -> dict[int, list[int]]:
    return {
        partition: [row["offset"] for row in rows if row["partition"] == partition] for partition in range(PARTITIONS)
    }


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batch_reads_each_record_once_with_all_columns(
    cluster: ClusterUnderTest, spark: ProgramProcess, topics: tuple[str, str], codec: str
) -> None:
    topic, _ = topics
    write(cluster, topic, 0, 40, codec)
    rows = spark.ask({"do": "read", "options": {"subscribe": topic, "includeHeaders": "true", "minPartitions": "7"}})
    expected = [
        {
            "topic": topic,
            "partition": partition,
            "offset": number,
            "timestamp_ms": FIRST_MS + 1000 * number,
            "key": b"%d" % number,
            "value": None if number % 7 == 3 else b"value %d of %d" % (number, partition),
            "headers": HEADERS,
        }
        for partition in range(PARTITIONS)
        for number in range(40)
    ]
    assert [decoded(row) for row in rows] == expected


def decoded(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "key": b64decode(row["key"]),
        "value": None if row["value"] is None else b64decode(row["value"]),
        "headers": [(name, b64decode(value)) for name, value in row["headers"]],
    }


def test_batch_reads_between_offsets_and_between_times(
    cluster: ClusterUnderTest, spark: ProgramProcess, topics: tuple[str, str]
) -> None:
    topic, _ = topics
    write(cluster, topic, 0, 40)
    between = {
        "startingOffsets": f'{{"{topic}": {{"0": 5, "1": -2, "2": 39}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 9, "1": 3, "2": -1}}}}',
    }
    found = offsets(spark.ask({"do": "read", "options": {"subscribe": topic, **between}}))
    assert found == {0: [5, 6, 7, 8], 1: [0, 1, 2], 2: [39]}
    between = {"startingTimestamp": str(FIRST_MS + 9_500), "endingTimestamp": str(FIRST_MS + 13_000)}
    found = offsets(spark.ask({"do": "read", "options": {"subscribe": topic, **between}}))
    assert found == {partition: [10, 11, 12] for partition in range(PARTITIONS)}


def test_starting_time_after_the_last_record_is_an_error_or_latest(
    cluster: ClusterUnderTest, spark: ProgramProcess, topics: tuple[str, str]
) -> None:
    topic, _ = topics
    write(cluster, topic, 0, 5)
    options = {"subscribe": topic, "startingTimestamp": str(FIRST_MS + 60_000)}
    with pytest.raises(RefusedError, match="offset"):
        spark.ask({"do": "read", "options": options})
    options["startingOffsetsByTimestampStrategy"] = "latest"
    assert spark.ask({"do": "read", "options": options}) == []


def test_batch_write_is_read_by_another_client(
    cluster: ClusterUnderTest, spark: ProgramProcess, topics: tuple[str, str]
) -> None:
    topic, _ = topics
    rows = [(b"%d" % number, None if number % 5 == 4 else b"value %d" % number) for number in range(50)]
    given = [
        {
            "topic": topic,
            "partition": number % PARTITIONS,
            "key": text(key),
            "value": None if value is None else text(value),
            "headers": [[name, text(each)] for name, each in HEADERS],
        }
        for number, (key, value) in enumerate(rows)
    ]
    spark.ask({"do": "write", "rows": given, "options": {"includeHeaders": "true"}})
    # Two tasks write, so that only the set of a partition's records is known.
    found = read(cluster, topic)
    for partition in range(PARTITIONS):
        assert sorted(found[partition]) == sorted(rows[partition::PARTITIONS], key=lambda row: row[0] or b"")


def text(data: bytes) -> str:
    return b64encode(data).decode()


def test_available_now_limits_batches_and_goes_on_from_its_checkpoint(
    cluster: ClusterUnderTest, spark: ProgramProcess, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    command = {
        "do": "copy",
        "from": source,
        "to": target,
        "checkpoint": str(tmp_path),
        "available_now": True,
        "options": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"},
    }
    write(cluster, source, 0, 40)
    assert spark.ask(command) == 4
    write(cluster, source, 40, 50)
    assert spark.ask(command) == 1
    assert spark.ask(command) == 0
    assert copied(cluster, target) == copied(cluster, source)


def copied(cluster: ClusterUnderTest, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return the records of all partitions, sorted."""
    return sorted((row for rows in read(cluster, topic).values() for row in rows), key=repr)


def test_deleted_records_end_the_query_unless_loss_is_allowed(
    cluster: ClusterUnderTest, spark: ProgramProcess, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    command = {
        "do": "copy",
        "from": source,
        "to": target,
        "checkpoint": str(tmp_path),
        "available_now": True,
        "options": {"startingOffsets": "earliest"},
    }
    write(cluster, source, 0, 10)
    assert spark.ask(command) == 1
    write(cluster, source, 10, 30)
    cluster.delete_records(TopicPartition(source, 1), 20)
    with pytest.raises(RefusedError, match="failOnDataLoss"):
        spark.ask(command)
    spark.ask({**command, "options": {**command["options"], "failOnDataLoss": "false"}})
    found = set(copied(cluster, target))
    lost = {(b"%d" % number, None if number % 7 == 3 else b"value %d of 1" % number) for number in range(10, 20)}
    assert set(copied(cluster, source)) <= found
    assert {row for row in lost if row[1] is not None}.isdisjoint(found)


def test_micro_batches_copy_each_record_while_a_leader_is_killed(
    cluster: ClusterUnderTest, spark: ProgramProcess, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    spark.write(
        {
            "do": "copy",
            "from": source,
            "to": target,
            "checkpoint": str(tmp_path),
            "available_now": False,
            "options": {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"},
        }
    )
    assert spark.read() == {"running": True}
    write(cluster, source, 0, 200)
    wait_for("the first records", lambda: len(copied(cluster, target)) >= 30, 60)
    leader = cluster.leader(TopicPartition(source, 0))
    cluster.kill(leader)
    try:
        write(cluster, source, 200, 400)
        wanted = set(copied(cluster, source))
        wait_for("all records", lambda: set(copied(cluster, target)) >= wanted, 120)
    finally:
        cluster.restart(leader)
        spark.write({"do": "stop"})
        assert spark.read()["result"] > 0
        for topic in topics:
            for partition in range(PARTITIONS):
                cluster.wait_in_sync(TopicPartition(topic, partition))
    assert set(copied(cluster, target)) == wanted

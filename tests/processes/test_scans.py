"""Three real brokers, and the libraries that read a topic's time window in one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import duckdb
import polars
import pytest

import tidelog
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tidelog import Consumer, Producer, TopicPartition
from tidelog.clock import SystemClock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MINUTE = 60_000
EACH = 3_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Written(NamedTuple):
    """A topic of three partitions with a record for each second of an hour, in turns, from `start_ms` on."""

    cluster: RunningCluster
    topic: str
    start_ms: int


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    with running_cluster(tmp_path_factory.mktemp("brokers")) as cluster:
        cluster.create_topic("rows", 3)
        start_ms = SystemClock().now_ms() - 90 * MINUTE
        for number, codec in enumerate(CODECS):
            with Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type=codec, linger_ms=5) as producer:
                for second in range(number * EACH // len(CODECS), (number + 1) * EACH // len(CODECS)):
                    producer.send(
                        "rows",
                        b"value %d" % second if second % 7 else None,
                        key=b"%d" % second if second % 3 else None,
                        headers={"second": b"%d" % second} if second % 5 == 0 else None,
                        partition=second % 3,
                        # Every tenth record is a minute late.
                        timestamp_ms=start_ms + second * 1_000 - (MINUTE if second % 10 == 0 else 0),
                    )
                producer.flush()
        yield Written(cluster, "rows", start_ms)


def polled(written: Written) -> list[tuple[Any, ...]]:
    """Return all records, read one by one: partition, offset, timestamp (ms), key, value."""
    rows = []
    options = {"bootstrap_servers": written.cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    with Consumer(**options, consumer_timeout_ms=3_000) as consumer:  # type: ignore[arg-type]
        consumer.assign([TopicPartition(written.topic, number) for number in range(3)])
        for record in consumer:
            rows.append((record.partition, record.offset, record.timestamp, record.key, record.value))
            if len(rows) == EACH:
                break
    return sorted(rows)


COLUMNS = ["partition", "offset", "timestamp", "key", "value"]


def test_libraries_read_a_time_window_of_a_topic_exactly(written: Written) -> None:
    since, until = written.start_ms + 10 * MINUTE, written.start_ms + 20 * MINUTE
    expected = [row for row in polled(written) if since <= row[2] < until]
    assert 500 < len(expected) < 700
    scan = tidelog.scan("rows", since, until, columns=COLUMNS, bootstrap_servers=written.cluster.bootstrap_servers)

    frame = polars.DataFrame(scan).with_columns(polars.col("timestamp").dt.epoch("ms"))
    assert sorted(frame.rows(), key=lambda row: row[:2]) == expected
    found = duckdb.sql('SELECT "partition", "offset", epoch_ms("timestamp"), "key", "value" FROM scan ORDER BY 1, 2')
    assert found.fetchall() == expected


def test_killed_leader_loses_and_repeats_no_row_of_a_scan(written: Written) -> None:
    cluster = written.cluster
    expected = [row[:2] for row in polled(written)]
    scan = tidelog.scan("rows", bootstrap_servers=cluster.bootstrap_servers, max_partition_fetch_bytes=4_000)
    found: list[tuple[int, int]] = []
    victim = None
    for batch in scan:
        found += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
        if victim is None:
            victim = cluster.leader(TopicPartition("rows", 0))
            cluster.kill(victim)
    assert victim is not None
    cluster.restart(victim)
    assert sorted(found) == expected


def test_consumer_polls_columns_of_real_brokers(written: Written) -> None:
    expected = polled(written)
    found: list[tuple[Any, ...]] = []
    with Consumer(
        bootstrap_servers=written.cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe(["rows"])
        while len(found) < EACH:
            table = consumer.poll_arrow(10_000, columns=COLUMNS)
            assert table.num_rows, f"only {len(found)} rows came"
            frame = polars.DataFrame(table).with_columns(polars.col("timestamp").dt.epoch("ms"))
            found += frame.rows()
    assert sorted(found, key=lambda row: row[:2]) == expected

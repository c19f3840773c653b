"""Spark and real brokers of each kind: batches, streams, a leader killed under a stream, and the demo's two jobs."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import windowed_counts
from audit import audit, parse_arguments
from journal_audit import Figures
from pyspark.sql import DataFrame, SparkSession
from session import one_line
from stream_progress import Progress

from tests.any_kafka.clusters import AnyCluster
from tests.processes.harness.waiting import wait_for
from tests.processes.harness.workload import Workload
from tidelog import Consumer, Producer, TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

#: How long a stream may take on a machine whose two slow cores other tests use as well.
DEADLINE_S = 240
MINUTE_MS = 60_000


def source(brokers: AnyCluster, topic: str, **more: str) -> dict[str, str]:
    return {"tidelog.bootstrap.servers": brokers.bootstrap_servers, "subscribe": topic} | more


def ends(brokers: AnyCluster, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    with Consumer(bootstrap_servers=brokers.bootstrap_servers) as consumer:
        return consumer.end_offsets(partitions)


def test_killed_leader_fails_no_task_of_a_stream(spark: SparkSession, brokers: AnyCluster, tmp_path: Path) -> None:
    partitions = brokers.create_topic(3)
    topic = partitions[0].topic
    seen: Counter[tuple[int, int]] = Counter()
    batches: set[int] = set()

    def collect(frame: DataFrame, batch: int) -> None:
        batches.add(batch)
        seen.update((row.partition, row.offset) for row in frame.select("partition", "offset").collect())

    failed_before = failed_tasks(spark)
    frame = spark.readStream.format("tidelog").options(**source(brokers, topic, startingOffsets="earliest")).load()
    query = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        # Spark waits only 10 s for its Python process, so that no load may come before.
        wait_for("the stream to begin", lambda: bool(batches) or not query.isActive, DEADLINE_S)
        assert query.exception() is None
        with Workload(brokers.bootstrap_servers, partitions) as workload:
            wait_for("the stream to read", lambda: len(seen) > 0 or not query.isActive, DEADLINE_S)
            victim = brokers.leader(partitions[0])
            brokers.kill(victim)
            workload.wait_acknowledged(500)
            brokers.restart(victim)
            workload.wait_acknowledged(200)
        wanted = {(tp.partition, offset) for tp, end in ends(brokers, partitions).items() for offset in range(end)}
        wait_for("the stream to read everything", lambda: seen.keys() >= wanted or not query.isActive, DEADLINE_S)
        assert query.exception() is None
    finally:
        query.stop()
    brokers.wait_whole(partitions[0])
    assert seen == Counter(wanted)
    assert failed_tasks(spark) == failed_before


def failed_tasks(spark: SparkSession) -> int:
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    return sum(executors.apply(index).failedTasks() for index in range(executors.size()))


def test_records_written_by_spark_are_read_back_by_time(spark: SparkSession, brokers: AnyCluster) -> None:
    topic = brokers.create_topic(2)[0].topic
    rows = spark.range(20_000).selectExpr(
        "cast(id as string) key", "concat('v', id) value", "cast(id % 2 as int) partition"
    )
    began_ms = int(time.time() * 1000)
    rows.write.format("tidelog").options(**sink(brokers, topic)).mode("append").save()
    since = source(brokers, topic, startingTimestamp=str(began_ms))
    back = spark.read.format("tidelog").options(**since).load()
    assert back.selectExpr("cast(value as string) value").distinct().count() == back.count() == 20_000
    texts = back.selectExpr("cast(key as string) key", "cast(value as string) value", "partition")
    assert texts.where("cast(key as int) % 2 != partition or concat('v', key) != value").count() == 0


def sink(brokers: AnyCluster, topic: str) -> dict[str, str]:
    return {"tidelog.bootstrap.servers": brokers.bootstrap_servers, "topic": topic}


def test_unknown_topic_is_named_in_one_line(spark: SparkSession, brokers: AnyCluster, tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text("")
    with pytest.raises(Exception, match="there is no topic 'nowhere'") as failure:
        audit_of(spark, brokers, "nowhere", tmp_path / "journal.jsonl")
    assert one_line(failure.value) == "there is no topic 'nowhere': create it, or correct the option"


def audit_of(spark: SparkSession, brokers: AnyCluster, topic: str, journal: Path) -> Figures:
    arguments = ["--bootstrap-servers", brokers.bootstrap_servers, "--topic", topic, "--journal", str(journal)]
    return audit(spark, parse_arguments(arguments))


class Lines:
    """Sends lines as the demo does, remembers what it sent, and writes the audit's journal."""

    def __init__(self, brokers: AnyCluster, topic: str, journal: Path) -> None:
        self.sent: list[tuple[int, str]] = []  # timestamp, source
        self._topic, self._brokers, self._journal = topic, brokers, journal

    def send(self, count: int, timestamp_ms: Any) -> None:
        futures = []
        with Producer(bootstrap_servers=self._brokers.bootstrap_servers) as producer:
            for _ in range(count):
                number = len(self.sent)
                at_ms, source_name, value = timestamp_ms(number), f"log{number % 2}", b"line %d" % number
                self.sent.append((at_ms, source_name))
                key = source_name.encode()
                future = producer.send(self._topic, value, key=key, partition=number % 3, timestamp_ms=at_ms)
                futures.append((future, value))
        with self._journal.open("a") as journal:
            for future, value in futures:
                place = future.get(30)
                row = {"topic": self._topic, "partition": place.partition, "offset": place.offset, "acked": True}
                journal.write(json.dumps(row | {"digest": hashlib.sha256(value).hexdigest()[:32]}) + "\n")


def events(progress: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in progress.read_text().splitlines()] if progress.exists() else []


@pytest.fixture
def as_a_job(spark: SparkSession) -> Iterator[None]:
    """Start the session with the settings of the job. Restore the signal handlers, because the job replaces them."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    settings = {name: spark.conf.get(name) for name in windowed_counts.SETTINGS}
    for name, value in windowed_counts.SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name, before in settings.items():
        spark.conf.set(name, before)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.slow
def test_windowed_counts_and_late_lines_are_all_lines_from_the_chosen_time(
    spark: SparkSession, brokers: AnyCluster, tmp_path: Path, as_a_job: None
) -> None:
    """Run the job in the shared session. The demo, whose test takes minutes, runs it as a separate process."""
    partitions = brokers.create_topic(3)
    topic = partitions[0].topic
    journal, progress, stop = tmp_path / "journal.jsonl", tmp_path / "progress.jsonl", tmp_path / "stop.json"
    lines = Lines(brokers, topic, journal)
    now_ms = int(time.time() * 1000)
    begin_ms = now_ms - 60 * MINUTE_MS
    lines.send(300, lambda number: begin_ms - 300 + number)  # the last one is 1 ms before the chosen time
    arguments = ["--bootstrap-servers", brokers.bootstrap_servers, "--topic", topic, "--timeout", "200"]
    arguments += ["--starting-timestamp", str(begin_ms), "--watermark", "5 minutes", "--progress", str(progress)]
    arguments += ["--output", str(tmp_path / "output"), "--checkpoint", str(tmp_path / "checkpoint")]
    arguments += ["--stop-file", str(stop)]

    def report() -> None:
        wait_for("the anchor", lambda: any(event["event"] == "batch" for event in events(progress)), DEADLINE_S)
        # Whatever the reading order, these timestamps differ by less than the watermark's delay.
        lines.send(3000, lambda number: begin_ms + 30 * MINUTE_MS + number * 60)
        wait_for("a watermark", lambda: any(event.get("watermark") for event in events(progress)), DEADLINE_S)
        lines.send(200, lambda number: begin_ms + number)  # half an hour late
        lines.send(300, lambda number: begin_ms - 10_000 if number % 2 else now_ms)
        end = {tp.partition: offset for tp, offset in ends(brokers, partitions).items()}
        stop.with_suffix(".new").write_text(json.dumps(end))
        stop.with_suffix(".new").rename(stop)

    with ThreadPoolExecutor(1) as pool:
        teller = pool.submit(report)
        status = windowed_counts.count_until_stopped(
            spark, windowed_counts.parse_arguments(arguments), Progress(progress, spark)
        )
        teller.result()
    shown = events(progress)
    assert status == 0
    ended = shown[-1]
    from_time = [line for line in lines.sent if line[0] >= begin_ms]
    late = lines.sent[3300:3500]
    counts: Counter[tuple[int, str]] = Counter()
    for row in pq.read_table(tmp_path / "output" / "counts").to_pylist():
        counts[int(row["minute"].timestamp()) // 60, row["source"]] += row["lines"]
    assert (ended["event"], ended["reason"], ended["failed_tasks"]) == ("ended", "end offsets", 0)
    assert ended["late"] == len(late) == 200
    assert counts.total() + ended["late"] == len(from_time)
    # Some lines older than the chosen time stand behind the look-up's answer: they are read, and left out.
    assert ended["before"] == sum(at_ms < begin_ms for at_ms, _ in lines.sent[300:])
    assert counts == by_minute(from_time) - by_minute(late)

    figures = audit_of(spark, brokers, topic, journal)
    assert (figures.acked, figures.read, figures.ok) == (len(lines.sent), len(lines.sent), True)


def by_minute(lines: list[tuple[int, str]]) -> Counter[tuple[int, str]]:
    return Counter((at_ms // MINUTE_MS, name) for at_ms, name in lines)

"""Apache Kafka's own dump tool reads what real brokers wrote, and sees a single wrong entry."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.judge import assert_blames, changed, check
from tidelog import Producer, TopicPartition

SETTINGS = {"segment.bytes": "20000", "index.interval.bytes": "1000"}
RECORDS = 600
START_MS = 1_795_253_400_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def produce(cluster: RunningCluster, topic: str, first: int) -> None:
    """Keys, values and headers of all kinds, and times that go up and down."""
    with Producer(cluster.bootstrap_servers, batch_size=1000, client_id="judged") as producer:
        for number in range(first, first + RECORDS):
            producer.send(
                topic,
                None if number % 7 == 0 else b"value %d" % number * (number % 9),
                key=None if number % 3 == 0 else b"key %d" % number,
                headers=[("name", b"x"), ("näme", None)] if number % 2 else None,
                partition=number % 2,
                timestamp_ms=START_MS + number * 10 - (number % 5) * 70,
            )


def test_kafka_finds_no_mismatch_until_one_entry_is_wrong(cluster: RunningCluster, tmp_path: Path) -> None:
    tps = cluster.create_topic("judged", partitions=2, configs=SETTINGS)
    produce(cluster, "judged", 0)
    leader = cluster.leader(tps[0])
    cluster.kill(leader)
    produce(cluster, "judged", RECORDS)
    cluster.restart(leader)
    for tp in tps:
        cluster.wait_in_sync(tp)
        assert cluster.znode(tp).state.leader_epoch >= (tp == tps[0])
    produce(cluster, "judged", 2 * RECORDS)
    for tp in tps:
        cluster.wait_same_end(tp)
    directories = [cluster.local.broker_dir(broker_id) for broker_id in cluster.broker_ids]

    while_running = check(*directories)
    assert while_running.returncode == 0, while_running.stdout + while_running.stderr

    cluster.local.stop()
    stopped = check(*directories)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert f"{3 * 3 * RECORDS:,} records" in stopped.stdout
    assert all(count > 3 * len(tps) for count in files_of_each_kind(stopped.stdout)), stopped.stdout

    copy = tmp_path / "a copy, changed" / str(TopicPartition("judged", 0))
    shutil.copytree(directories[-1] / copy.name, copy)
    index, timeindex = (
        max(copy.glob(f"*{kind}"), key=lambda path: path.stat().st_size) for kind in (".index", ".timeindex")
    )
    assert check(copy.parent).returncode == 0
    with changed(index, struct.Struct(">ii"), lambda offset, position: (offset - 1, position)):
        assert_blames(check(copy.parent), index)
    with changed(timeindex, struct.Struct(">qi"), lambda timestamp, offset: (timestamp + 1, offset)):
        assert_blames(check(copy.parent), timeindex)


def files_of_each_kind(report: str) -> list[int]:
    counts = [line.split()[1] for line in report.splitlines() if line.startswith(".")]
    assert len(counts) == 4
    return [int(count.replace(",", "")) for count in counts]

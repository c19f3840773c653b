"""The records of groups on brokers' disks: Kafka's own tool decodes them, and compaction keeps them small."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.coordinators import coordinator
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer, OffsetAndMetadata, TopicPartition
from tidelog.errors import error_for, raise_first
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import Endpoint
from tidelog.protocol.group_messages import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.kafka.client.connection import Connection
from tools.check.toolbox import DUMP_TOOL, NotRun, kafka_command

KEPT = TopicPartition(OFFSETS_TOPIC, 0)


# --- Kafka reads it ----------------------------------------------------------------------------------


def decoded(log: Path) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Keys and values of a segment as Kafka's offsets decoder has them, without what it is not asked about."""
    try:
        tool = kafka_command(DUMP_TOOL)
    except NotRun as reason:
        pytest.skip(str(reason))
    dumped = subprocess.run(
        [*tool, "--offsets-decoder", "--files", str(log)], capture_output=True, text=True, timeout=300, check=True
    )
    return list(records(dumped.stdout))


def records(dump: str) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    for line in dump.splitlines():
        if line.startswith("| "):
            found = re.search(r" key: (\{.*?\}) payload: (.*)$", line)
            assert found, line
            value = found[2]
            yield json.loads(found[1]), None if value == "<DELETE>" else json.loads(value)


def subscribed(cluster: RunningCluster, group: str, **options: Any) -> Consumer:
    """A consumer that is in the group and has its share."""
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, enable_auto_commit=False, **options
    )
    consumer.subscribe(["orders"])
    wait_for("an assignment", lambda: consumer.poll(200) is not None and consumer.assignment())
    return consumer


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cluster", [{"offsets_topic_num_partitions": 1}], indirect=True)
def test_kafka_decodes_commits_groups_and_tombstones(cluster: RunningCluster) -> None:
    [tp] = cluster.create_topic("orders")
    with closing(subscribed(cluster, "readers", group_instance_id="one", client_id="reader")) as consumer:
        consumer.commit({tp: OffsetAndMetadata(5, "nöte", 0)})
    subscribed(cluster, "gone").close()
    cluster.admin.alter_consumer_group_offsets("gone", {tp: OffsetAndMetadata(7)})
    assert cluster.admin.delete_consumer_groups(["gone"]) == {"gone": None}
    cluster.wait_same_end(KEPT)
    directories = [cluster.replica_dir(broker_id, KEPT) for broker_id in cluster.broker_ids]
    cluster.local.stop()

    shown, *others = [decoded(directory / f"{0:020}.log") for directory in directories]
    assert others == [shown, shown]
    commit, group = key(1, group="readers", topic="orders", partition=0), key(2, group="readers")
    values = {json.dumps(shown_key): value for shown_key, value in shown if shown_key in (commit, group)}
    committed, readers = values[json.dumps(commit)], values[json.dumps(group)]
    assert committed is not None and readers is not None
    assert within(committed, 3, offset=5, leaderEpoch=0, metadata="nöte")
    assert within(readers, 3, protocolType="consumer", generation=1, protocol="range")
    [member] = readers["data"]["members"]
    assert readers["data"]["leader"] == member["memberId"]
    assert (member["groupInstanceId"], member["clientId"]) == ("one", "reader")
    assert member["subscription"]["topics"] == ["orders"]
    assert member["assignment"]["assignedPartitions"] == [{"topic": "orders", "partitions": [0]}]

    gone = [value for shown_key, value in shown if shown_key == key(2, group="gone")]
    assert len(gone) == 3
    full, empty, tombstone = gone
    assert full is not None and empty is not None and tombstone is None
    assert len(full["data"]["members"]) == 1
    assert within(empty, 3, protocolType="consumer", generation=2, protocol=None, leader=None, members=[])
    assert shown[-2:] == [(key(1, group="gone", topic="orders", partition=0), None), (key(2, group="gone"), None)]


def key(kind: int, **data: Any) -> dict[str, Any]:
    return {"type": str(kind), "data": data}


def within(shown: Mapping[str, Any], version: int, **data: Any) -> bool:
    return shown["version"] == str(version) and {name: shown["data"][name] for name in data} == data


# --- it stays small ----------------------------------------------------------------------------------

COMMITS, AT_ONCE, IN_FLIGHT = 1_000_000, 100, 10
SEGMENT_BYTES = 1 << 20


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "cluster",
    [{"offsets_topic_num_partitions": 1, "offsets_topic_segment_bytes": SEGMENT_BYTES, "log_cleaner_backoff_ms": 200}],
    indirect=True,
)
def test_million_commits_are_compacted_to_megabytes_without_loss(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("orders", partitions=AT_ONCE)
    address = cluster.address(coordinator(cluster, "busy"))
    cluster.wait_in_sync(KEPT)
    directories = [cluster.replica_dir(broker_id, KEPT) for broker_id in cluster.broker_ids]
    largest = asyncio.run(commit_a_million(address, tps, directories))

    written = cluster.wait_same_end(KEPT)
    assert written >= COMMITS
    least = written * 40  # bytes, if nothing were ever taken away
    assert largest < least / 3, "compaction went on meanwhile"
    wait_for("compaction", lambda: max(map(size_of, directories)) < 4 * SEGMENT_BYTES, timeout_s=60)
    last = COMMITS // AT_ONCE - 1
    committed = cluster.admin.list_consumer_group_offsets("busy")
    assert {tp: found.offset for tp, found in committed.items() if found is not None} == dict.fromkeys(tps, last)


async def commit_a_million(address: str, tps: list[TopicPartition], directories: list[Path]) -> int:
    """Return the largest size of any replica so far."""
    connection = await Connection.open(Endpoint.parse(address), client_id="test", timeout_ms=10_000)
    largest = 0
    with closing(connection):
        for first in range(0, COMMITS // AT_ONCE, IN_FLIGHT):
            asked = [
                OffsetCommitRequest("busy", tuple(OffsetCommitPartition(*tp, offset) for tp in tps))
                for offset in range(first, first + IN_FLIGHT)
            ]
            for answer in await asyncio.gather(*(connection.call(each, timeout_ms=30_000) for each in asked)):
                assert isinstance(answer, OffsetCommitResponse)
                raise_first(error_for(part.error_code) for part in answer.partitions)
            if first % (IN_FLIGHT * 20) == 0:
                largest = max(largest, *map(size_of, directories))
    return largest


def size_of(directory: Path) -> int:
    """Return the size of all files that are not about to be deleted."""
    total = 0
    for path in directory.glob("*.log"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total

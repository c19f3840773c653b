"""Kafka's shell tools do those tasks of docs/KAFKA-TOOLS.md that only show something while a broker is dead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import confluent_kafka as ck
import kafka
import pytest

from tests.clients.admin_clients import kafka_python_admin
from tests.clients.cluster_under_test import ClusterUnderTest
from tests.clients.languages.shell_tools import run_tool
from tidelog import TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]  # all tests share one cluster

_numbers = count(1)


@pytest.fixture
def admin(servers: str) -> Iterator[kafka.KafkaAdminClient]:
    with kafka_python_admin(servers) as client:
        yield client


@pytest.fixture
def follower(cluster: ClusterUnderTest, admin: kafka.KafkaAdminClient, topic: str) -> int:
    """Return a broker that neither leads the topic's partition nor is the controller."""
    controller = admin.describe_cluster()["controller_id"]
    return min({*cluster.broker_ids} - {controller, cluster.leader(TopicPartition(topic, 0))})


@contextmanager
def dead(cluster: ClusterUnderTest, broker: int, topic: str) -> Iterator[None]:
    """Kill the broker. At the end restart it, and wait until its replica of the topic is in sync again."""
    cluster.kill(broker)
    try:
        yield
    finally:
        cluster.restart(broker)
        cluster.wait_in_sync(TopicPartition(topic, 0))


def shown(servers: str, script: str, *arguments: str) -> str:
    """Return the output of the script. Its exit status must be 0."""
    status, text = run_tool(script, [*arguments, "--bootstrap-server", servers])
    assert status == 0, text
    return text


def write_megabytes(servers: str, tp: TopicPartition, megabytes: int) -> None:
    producer = ck.Producer({"bootstrap.servers": servers})
    for _ in range(10 * megabytes):
        producer.produce(tp.topic, bytes(100_000), partition=tp.partition)
    assert producer.flush(60) == 0


def test_topics_tool_shows_partitions_that_lack_a_replica(
    cluster: ClusterUnderTest, servers: str, topic: str, follower: int
) -> None:
    asked = ("kafka-topics", "--describe", "--under-replicated-partitions")
    with dead(cluster, follower, topic):
        cluster.wait_in_sync(TopicPartition(topic, 0), replicas=2)
        for text in (shown(servers, *asked), shown(servers, *asked, "--topic", topic)):
            found = re.search(rf"Topic: {topic}\s+Partition: 0\s.*\sIsr: (\d),(\d)\s", text)
            assert found is not None, text
            assert {*map(int, found.groups())} == {*cluster.broker_ids} - {follower}
    assert not shown(servers, *asked, "--topic", topic).strip()


def test_reassign_tool_shows_and_cancels_a_reassignment_in_progress(
    cluster: ClusterUnderTest, servers: str, admin: kafka.KafkaAdminClient, topic: str, follower: int, tmp_path: Path
) -> None:
    moved, file = TopicPartition(f"moved-{next(_numbers)}", 0), tmp_path / "file.json"
    first, second = (each for each in cluster.broker_ids if each != follower)
    admin.create_topics({moved.topic: {"assignments": {0: [first, second]}}})
    cluster.wait_in_sync(moved, replicas=2)
    write_megabytes(servers, moved, 60)
    target = [follower, second]
    file.write_text(json.dumps({"partitions": [{**moved._asdict(), "replicas": target}], "version": 1}))

    def reassignments(*arguments: str) -> str:
        return shown(servers, "kafka-reassign-partitions", *arguments)

    started = admin.alter_partition_reassignments({kafka.TopicPartition(*moved): target})
    # The broker dies before it has copied the records, so that the reassignment cannot end.
    with dead(cluster, follower, topic):
        assert started == {kafka.TopicPartition(*moved): None}
        text = reassignments("--list")
        assert f"{moved}: replicas: {follower},{second},{first}. adding: {follower}. removing: {first}." in text, text
        text = reassignments("--reassignment-json-file", str(file), "--verify")
        assert f"Reassignment of partition {moved} is still in progress." in text, text
        # Without --preserve-throttles the tool waits for the dead broker.
        text = reassignments("--reassignment-json-file", str(file), "--cancel", "--preserve-throttles")
        assert f"Successfully cancelled partition reassignment for: {moved}" in text, text
        assert "No partition reassignments found." in reassignments("--list")
        text = shown(servers, "kafka-topics", "--describe", "--topic", moved.topic)
        assert re.search(rf"Replicas: ({first},{second}|{second},{first})\s", text), text

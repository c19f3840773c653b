"""A broker is drained of all topics with a throttle, under load."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.command import Outcome, Shell
from tests.processes.harness.ordeal import ordeal
from tidelog import NewTopic, OffsetAndMetadata, Producer, TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LIVE = [TopicPartition("live", partition) for partition in range(3)]
OLD = [TopicPartition(topic, partition) for topic in ("old-a", "old-b") for partition in range(3)]
REPLICAS = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
RECORD, RECORDS_EACH = bytes(100_000), 60
RATE = 4_000_000


def fill(cluster: RunningCluster) -> None:
    """Write 36 MB to the topics `OLD`, and have a group commit, so that there is an internal topic too."""
    for topic in ("live", "old-a", "old-b"):
        cluster.admin.create_topics([NewTopic(topic, assignment=REPLICAS, configs={"min.insync.replicas": "2"})])
    with Producer(cluster.bootstrap_servers) as producer:
        for tp in OLD * RECORDS_EACH:
            producer.send(tp.topic, RECORD, partition=tp.partition)
        producer.flush()
    cluster.admin.alter_consumer_group_offsets("billing", {OLD[0]: OffsetAndMetadata(1)})
    for tp in (*LIVE, *OLD):
        cluster.wait_in_sync(tp)


def drain(shell: Shell, broker: int, *options: str) -> tuple[Outcome, float]:
    """Drain the broker of all topics; return the outcome and how many seconds it took."""
    began = time.monotonic()
    outcome = shell.run("topic", "reassign", "--drain-broker", str(broker), *options, timeout_s=200)
    return outcome, time.monotonic() - began


def replicas_on(cluster: RunningCluster, broker: int) -> list[TopicPartition]:
    described = cluster.admin.describe_topics()
    assert "__consumer_offsets" in {topic.topic for topic in described}
    return [
        TopicPartition(topic.topic, each.partition)
        for topic in described
        for each in topic.partitions
        if broker in each.replicas
    ]


def throttles(shell: Shell, cluster: RunningCluster) -> list[str]:
    """Return the throttle settings of brokers and topics that are not the default."""
    owners = [("--broker", str(broker)) for broker in cluster.broker_ids] + [("live",), ("old-a",), ("old-b",)]
    settings = [
        each
        for owner in owners
        for each in json.loads(shell.succeed("config", "describe", *owner, "--json"))["settings"]
        if "throttled" in each["name"]
    ]
    assert len(settings) == 2 * len(owners)
    return [f"{each['name']}={each['value']}" for each in settings if each["source"] != "DEFAULT_CONFIG"]


def test_broker_is_drained_at_the_rate_of_the_throttle_under_load(tmp_path: Path) -> None:
    with running_cluster(tmp_path, 4, offsets_topic_num_partitions=5) as cluster:
        fill(cluster)
        shell = Shell(tmp_path, tmp_path / "home")
        assert replicas_on(cluster, 1)
        with ordeal(cluster, LIVE) as under:
            outcome, throttled_s = drain(shell, 1, "--throttle", f"{RATE}B/s")
            print(outcome.output.decode(), outcome.complaint, f"{throttled_s:.1f} s", sep="\n")
            assert outcome.status == 0
            assert replicas_on(cluster, 1) == [] and throttles(shell, cluster) == []

            least_s = len(OLD) * RECORDS_EACH * len(RECORD) / RATE
            assert throttled_s > 0.8 * least_s, "broker 4 gets all records"
            shown = outcome.output.decode()
            assert "each broker sends and receives at most 3.81 MiB/s, so at least " in shown
            assert shown.splitlines()[-1] == "the throttle is removed"
            assert re.search(r"^\d+ reassignments?: .* still to copy at .*/s, about .* left$", outcome.complaint, re.M)
            assert "the reassignments have ended after " in outcome.complaint
            assert not any(cluster.said(broker, "the ISR is now") for broker in cluster.broker_ids)

            under.workload.wait_acknowledged(100)
            outcome, free_s = drain(shell, 2, "--wait", "--json")
            assert outcome.status == 0 and json.loads(outcome.output)["reassignments"] == []
            assert {each["state"] for each in json.loads(outcome.output)["changes"]} == {"done"}
            assert replicas_on(cluster, 2) == []
            print(f"{free_s:.1f} s without a throttle")
            assert free_s < throttled_s, "as many records move to broker 1"
        for tp in OLD:
            assert cluster.wait_same_end(tp) == RECORDS_EACH

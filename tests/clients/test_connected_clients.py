"""`tidelog clients` lists clients of several kinds that are connected at once."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.request import urlopen

import confluent_kafka as ck
import kafka
import pytest

from tests.clients.adapters import kcat
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.command import Shell
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer, Producer, TopicPartition

pytestmark = pytest.mark.xdist_group("clients, second cluster")  # so that two workers share the tests of clients


@pytest.fixture
def shell(cluster: RunningCluster) -> Shell:
    """A user whose last `up` was this cluster."""
    return Shell(cluster.local.home.parent, cluster.local.home)


def listed(shell: Shell, *options: str) -> list[dict[str, Any]]:
    connections: list[dict[str, Any]] = json.loads(shell.succeed("clients", "--json", *options))["connections"]
    return connections


def by_client(connections: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in connections:
        found.setdefault(each["client_id"], []).append(each)
    return found


def topics_of(connections: list[dict[str, Any]], direction: str) -> set[str]:
    return {name for each in connections for name in each[direction]["topics"]}


@pytest.fixture
def connected(cluster: RunningCluster, servers: str, topic: str) -> Iterator[str]:
    """Let a client of each kind read or write the topic, and keep them connected. Return the topic."""
    with ExitStack() as stack:
        own = stack.enter_context(Producer(cluster.bootstrap_servers, client_id="own-writer"))
        own.send(topic, b"of ours").get(30)
        own_reader = stack.enter_context(
            Consumer(bootstrap_servers=cluster.bootstrap_servers, client_id="own-reader", auto_offset_reset="earliest")
        )
        own_reader.assign([TopicPartition(topic, 0)])
        wait_for("our consumer to read", lambda: own_reader.poll(100))
        confluent = ck.Producer({"bootstrap.servers": servers, "client.id": "confluent"})
        confluent.produce(topic, b"of librdkafka")
        assert confluent.flush(30) == 0
        python = stack.enter_context(
            closing(
                kafka.KafkaConsumer(
                    bootstrap_servers=servers, client_id="python", group_id=None, auto_offset_reset="earliest"
                )
            )
        )
        python.assign([kafka.TopicPartition(topic, 0)])
        wait_for("kafka-python to read", lambda: python.poll(100))
        if kcat.PROGRAM is not None:
            command = [kcat.PROGRAM, "-b", servers, "-C", "-t", topic, "-X", "client.id=kcat", "-u", "-q"]
            reader = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(reader.send_signal, signal.SIGINT)
            assert reader.stdout is not None and reader.stdout.readline() == b"of ours\n"
        yield topic
        del confluent


def test_clients_of_all_kinds_are_listed_at_once(connected: str, shell: Shell) -> None:
    found = by_client(listed(shell))
    expected = {
        "own-writer": ("tidelog", "writes"),
        "own-reader": ("tidelog", "reads"),
        "confluent": ("confluent-kafka-python", "writes"),
        "python": ("kafka-python", "reads"),
    }
    if kcat.PROGRAM is not None:
        expected["kcat"] = ("librdkafka", "reads")
    for client_id, (software, direction) in expected.items():
        connections = found[client_id]
        assert {each["software_name"] for each in connections} == {software}, client_id
        assert topics_of(connections, direction) == {connected}, client_id
        other = {"reads": "writes", "writes": "reads"}[direction]
        assert topics_of(connections, other) == set(), client_id
        assert {each["host"] for each in connections} == {"127.0.0.1"}
        assert all(each["received_bytes"] > 0 and each["sent_bytes"] > 0 for each in connections), client_id
        api = {"reads": "Fetch", "writes": "Produce"}[direction]
        assert any(use["api"] == api and use["count"] > 0 for each in connections for use in each["requests"])
        assert {each["listener"] for each in connections} == {"KAFKA"}, client_id


def test_filter_names_those_who_use_a_topic(connected: str, cluster: RunningCluster, shell: Shell) -> None:
    cluster.create_topic("of-nobody")
    users = by_client(listed(shell, "--topic", connected))
    assert {"own-writer", "own-reader", "confluent", "python"} <= users.keys() <= {
        "own-writer", "own-reader", "confluent", "python", "kcat",
    }  # fmt: skip
    assert listed(shell, "--topic", "of-nobody") == []
    refused = shell.run("clients", "--topic", "nowhere")
    assert refused.status == 1 and "no topic 'nowhere'" in refused.complaint


def test_table_has_a_row_for_each_client(connected: str, shell: Shell) -> None:
    rows = shell.succeed("clients").decode().splitlines()
    assert rows[0].split()[:5] == ["CLIENT", "SOFTWARE", "ADDRESS", "BROKERS", "CONNECTIONS"]
    (row,) = [row for row in rows if row.startswith("confluent ")]
    assert re.match(rf"confluent +confluent-kafka-python/\S+ +127\.0\.0\.1 +[123,]+ +\d +- +{connected} ", row), row
    every = shell.succeed("clients", "--all", "--topic", connected).decode().splitlines()
    assert all(re.search(r" 127\.0\.0\.1:\d+ +[123] +KAFKA ", row) for row in every[1:])
    assert any(re.match(r"confluent .* (\S+,)?Produce/\d+:\d+", row) for row in every)


def test_metrics_count_connections_requests_and_bytes_by_software(connected: str, cluster: RunningCluster) -> None:
    known = cluster.local.known_state()
    texts = [urlopen(f"{each.http_address}/metrics", timeout=30).read().decode() for each in known.brokers]
    for family in ("connections", "requests_total", "received_bytes_total", "sent_bytes_total"):
        named = rf'^tidelog_client_{family}\{{software="kafka-python",version="[\d.]+"\}} [1-9]'
        assert any(re.search(named, text, re.MULTILINE) for text in texts), family


def test_broker_that_hangs_is_named_and_the_others_are_shown(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_cluster(tmp_path_factory.mktemp("hanging")) as cluster:
        shell = Shell(cluster.local.home.parent, cluster.local.home)
        shell.succeed("clients")
        cluster.signal(2, signal.SIGSTOP)
        try:
            ended = shell.run("clients", "--timeout", "3", "--json")
        finally:
            cluster.signal(2, signal.SIGCONT)
    assert ended.status == 1
    assert "1 broker of 3 did not answer: broker 2: " in ended.complaint
    answer = json.loads(ended.output)
    assert [(each["id"], each["error"] is None) for each in answer["brokers"]] == [(1, True), (2, False), (3, True)]
    assert {each["broker"] for each in answer["connections"]} == {1, 3}

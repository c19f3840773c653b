"""Clients at the port of the other protocol: the error or the broker's log names the right address."""

from __future__ import annotations

import subprocess
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.adapters import kcat
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.command import TIDELOG
from tests.processes.harness.waiting import wait_for
from tidelog import Admin
from tidelog.errors import NoBrokersError

PAGE = Path(__file__).parents[2] / "docs" / "KAFKA-CLIENTS.md"

pytestmark = pytest.mark.xdist_group("clients, second cluster")  # so that two workers share the tests of clients


def test_kafka_client_at_our_port_is_named_in_the_brokers_log(cluster: RunningCluster) -> None:
    broker = cluster.local.known_state().broker(1)
    client = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    with pytest.raises(ck.KafkaException):
        client.list_topics(timeout=1)
    line = f"Kafka clients connect to {broker.host}:{broker.kafka_port}"
    wait_for("the line in the log", lambda: cluster.said(1, line), 30)
    assert cluster.said(1, line) == 1, "one line, although the client tries again"


def test_our_client_at_a_kafka_port_gets_an_error_with_the_right_addresses(
    cluster: RunningCluster, servers: str
) -> None:
    right = ",".join(cluster.address(broker_id) for broker_id in cluster.broker_ids)
    with Admin(servers, bootstrap_timeout_ms=600_000) as admin, pytest.raises(NoBrokersError) as raised:
        admin.list_topics()
    assert str(raised.value).endswith(
        f": this is the listener KAFKA, for Kafka clients; Tidelog's own clients connect to {right}"
    )
    with Admin(right) as admin:
        admin.list_topics()
    wait_for("the line in the log", lambda: cluster.said(1, f"own clients connect to {right}"), 30)


def test_command_line_at_a_kafka_port_prints_the_right_addresses(cluster: RunningCluster, servers: str) -> None:
    command = [TIDELOG, "topic", "list", "--bootstrap-servers", servers.split(",")[0]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"Tidelog's own clients connect to {cluster.address(1)}" in ended.stderr


@kcat.needs_kcat
def test_kcat_at_our_port_ends_with_an_error_that_the_page_explains(cluster: RunningCluster) -> None:
    assert kcat.PROGRAM is not None
    command = [kcat.PROGRAM, "-b", cluster.address(1), "-L", "-m", "5"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    explained = ("Disconnected while requesting ApiVersion", "Invalid response size -16777216")
    assert any(text in ended.stderr for text in explained), ended.stderr
    assert all(text in PAGE.read_text() for text in explained)

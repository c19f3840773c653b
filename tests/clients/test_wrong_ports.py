"""Clients at the port for brokers: the error or the broker's log names the right listener."""

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
HINT = "speaks ZeroMQ instead of Kafka's protocol; a broker's listener REPLICATION is for brokers"

pytestmark = pytest.mark.xdist_group("clients, second cluster")  # so that two workers share the tests of clients


@pytest.fixture
def wrong(cluster: RunningCluster) -> list[str]:
    """Return the addresses of the brokers' listeners for brokers."""
    return [f"{each.host}:{each.replication_port}" for each in cluster.local.known_state().brokers]


def test_kafka_client_at_the_brokers_port_is_named_in_the_log(cluster: RunningCluster, wrong: list[str]) -> None:
    client = AdminClient({"bootstrap.servers": wrong[0], "log_level": 0})
    with pytest.raises(ck.KafkaException):
        client.list_topics(timeout=1)
    line = f"REPLICATION at {wrong[0]}: a peer speaks Kafka's protocol, but this port is for brokers"
    wait_for("the line in the log", lambda: cluster.said(1, line), 30)
    assert cluster.said(1, f"clients connect to {cluster.address(1)}") == 1, "one line, although the client tries again"


def test_our_client_at_the_brokers_ports_gets_an_error_at_once(wrong: list[str]) -> None:
    with Admin(",".join(wrong), bootstrap_timeout_ms=600_000) as admin, pytest.raises(NoBrokersError) as raised:
        admin.list_topics()
    assert str(raised.value).startswith(f"no broker of Kafka's protocol at {', '.join(wrong)}: ")
    assert HINT in str(raised.value)
    assert HINT in PAGE.read_text().replace("\n", " ")


def test_command_line_at_the_brokers_port_names_the_right_listener(wrong: list[str]) -> None:
    command = [TIDELOG, "topic", "list", "--bootstrap-servers", wrong[0]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"{HINT}, and clients connect to its listener KAFKA" in ended.stderr


@kcat.needs_kcat
def test_kcat_at_the_brokers_port_gets_an_error_that_the_page_explains(wrong: list[str]) -> None:
    assert kcat.PROGRAM is not None
    command = [kcat.PROGRAM, "-b", wrong[0], "-L", "-m", "5"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    explained = ("Disconnected while requesting ApiVersion", "Invalid response size -16777216")
    assert any(text in ended.stderr for text in explained), ended.stderr
    assert all(text in PAGE.read_text() for text in explained)

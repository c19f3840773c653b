"""Clients at the port of the other protocol: the error or the broker's log names the right address."""

from __future__ import annotations

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.waiting import wait_for
from tidelog import Admin
from tidelog.errors import NoBrokersError

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster


def test_kafka_client_at_our_port_is_named_in_the_brokers_log(cluster: RunningCluster) -> None:
    broker = cluster.local.known_state().broker(1)
    client = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    with pytest.raises(ck.KafkaException):
        client.list_topics(timeout=1)
    line = f"Kafka clients connect to {broker.host}:{broker.kafka_port}"
    wait_for("the line in the log", lambda: cluster.said(1, line), 30)
    assert cluster.said(1, line) == 1, "one line, although the client tries again"


def test_our_client_at_a_kafka_port_is_told_of_the_right_listener(cluster: RunningCluster, servers: str) -> None:
    address = servers.split(",")[0]
    with Admin(address, bootstrap_timeout_ms=1000) as admin, pytest.raises(NoBrokersError, match="listeners TIDELOG"):
        admin.list_topics()
    wait_for("the line in the log", lambda: cluster.said(1, f"own clients connect to {cluster.address(1)}"), 30)

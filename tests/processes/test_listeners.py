"""A broker with several listeners returns to each client the address of the listener that the client used."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient as KafkaAdminClient

from tests.processes.harness.cluster import running_cluster
from tests.processes.harness.waiting import wait_for
from tests.reserved_ports import reserved_port
from tidelog import Admin, Consumer, Producer
from tidelog.model import Endpoint
from tidelog.protocol.listeners import Listener

pytestmark = pytest.mark.slow

_WARNING = "there is no authentication yet"


def test_clients_get_the_advertised_address_of_their_listener(tmp_path: Path) -> None:
    with running_cluster(tmp_path, brokers=1) as cluster:
        (tp,) = cluster.create_topic("t", replicas=1, configs={"min.insync.replicas": "1"})
        assert cluster.said(1, _WARNING) == cluster.said(1, "beyond this machine") == 0
        inside, epoch = Endpoint.parse(cluster.address(1)), cluster.broker_epoch(1)
        cluster.terminate(1)
        outside = Endpoint("localhost", reserved_port())
        listeners = tomllib.loads((cluster.local.data_dir / "config/broker-1.toml").read_text())["listeners"]
        config = cluster.config(
            1,
            "more-listeners",
            listeners=[
                *listeners,
                str(Listener("KAFKA_HOST", Endpoint("0.0.0.0", outside.port))),
            ],
            advertised_listeners=[str(Listener("KAFKA_HOST", outside))],
            http_listener=str(watched := Endpoint("0.0.0.0", reserved_port())),
        )
        with cluster.launched(config):
            cluster.wait_serves(1, since=epoch)
            for server in (inside, outside):
                with Admin(str(server)) as admin:
                    wait_for("the broker to be told", lambda admin=admin: admin.describe_cluster().brokers)
                    assert dict(admin.describe_cluster().brokers) == {1: server}
                asked = KafkaAdminClient({"bootstrap.servers": str(server)}).list_topics(timeout=30)
                assert {id_: f"{each.host}:{each.port}" for id_, each in asked.brokers.items()} == {1: str(server)}
            with Producer(str(outside)) as producer:
                producer.send("t", b"through the other listener").get(timeout=10)
            with Consumer(bootstrap_servers=str(outside), auto_offset_reset="earliest") as consumer:
                consumer.assign([tp])
                assert next(iter(consumer)).value == b"through the other listener"
            assert cluster.said(1, f"listening beyond this machine at 0.0.0.0:{outside.port}: {_WARNING}") == 1
            assert cluster.said(1, f"health and metrics are served beyond this machine at {watched}: ") == 1


def test_broker_that_advertises_anothers_address_ends(tmp_path: Path) -> None:
    with running_cluster(tmp_path, brokers=1) as cluster:
        (tp,) = cluster.create_topic("t", replicas=1, configs={"min.insync.replicas": "1"})
        taken = str(Listener("KAFKA", Endpoint.parse(cluster.address(1))))
        config = cluster.config(
            1,
            "copied",
            broker_id=2,
            log_dirs=[str(tmp_path / "broker-2")],
            listeners=[f"{name}://127.0.0.1:{reserved_port()}" for name in ("KAFKA", "REPLICATION")],
            advertised_listeners=[taken],
            http_listener="",
            log_file="",
        )
        with cluster.launched(config) as copied:
            _, complaint = copied.communicate(timeout=60)
        assert copied.returncode == 1
        assert f"advertised_listeners: broker 1 already has the address of {taken}" in complaint.decode()
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send(tp.topic, b"still there").get(timeout=10)

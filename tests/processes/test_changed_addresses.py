"""The advertised addresses of a running broker change, and clients, brokers and the controller follow."""

from __future__ import annotations

import tomllib
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.port_forward import PortForward
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.waiting import wait_for
from tests.reserved_ports import reserved_port
from tidelog import Consumer, Producer
from tidelog.model import Endpoint
from tidelog.protocol.listeners import Listener

pytestmark = pytest.mark.slow

S = 60
ADVERTISED = "advertised.listeners"


class Addresses:
    """A second address for each listener of a broker: ports of this process that pass their connections on."""

    def __init__(self, cluster: RunningCluster, broker_id: int) -> None:
        config = cluster.local.data_dir / "config" / f"broker-{broker_id}.toml"
        bound = [Listener.parse(each) for each in tomllib.loads(config.read_text())["listeners"]]
        self.ports = {each.name: PortForward(each.endpoint.port) for each in bound}

    def __str__(self) -> str:
        return ",".join(f"{name}://{self.of(name)}" for name in self.ports)

    def of(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name].port}"

    def close(self) -> None:
        for each in self.ports.values():
            each.close()


def change(admin: AdminClient, broker_id: int, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entries = [ConfigEntry(ADVERTISED, value, incremental_operation=operation)]
    resource = ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(S)


def addresses_at(bootstrap: str) -> dict[int, str]:
    """Return the addresses of all brokers as this one tells clients."""
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=S).brokers
    return {broker_id: f"{each.host}:{each.port}" for broker_id, each in brokers.items()}


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    outcomes: list[ck.KafkaError | None] = []
    producer = ck.Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(S) == 0 and outcomes == [None]


def test_running_broker_moves_to_other_addresses_and_back(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster, ExitStack() as stack:
        (tp,) = cluster.create_topic("t")
        moved = cluster.leader(tp)
        other = next(each for each in cluster.broker_ids if each != moved)
        servers = cluster.bootstrap_servers.split(",")
        others_server = servers[cluster.broker_ids.index(other)]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        before, epoch, state = addresses_at(others_server), cluster.broker_epoch(moved), cluster.znode(tp).state
        first, second = Addresses(cluster, moved), Addresses(cluster, moved)
        stack.callback(first.close)
        stack.callback(second.close)

        with pytest.raises(ck.KafkaException, match="does not reach itself there"):
            change(admin, moved, f"REPLICATION://127.0.0.1:{reserved_port()}")
        taken = Listener("KAFKA", Endpoint.parse(others_server))
        with pytest.raises(ck.KafkaException, match=f"broker {other} already has the address of {taken}"):
            change(admin, moved, str(taken))
        assert addresses_at(others_server) == before

        for number, addresses in enumerate((first, second)):
            change(admin, moved, str(addresses))
            for server in servers:
                expected = {**before, moved: addresses.of("KAFKA")}
                wait_for("the brokers to be told", lambda server=server, all_=expected: addresses_at(server) == all_)
            # The two followers and the controller, which may be the moved broker itself or one of the followers.
            wait_for("others to come", lambda ports=addresses.ports: ports["REPLICATION"].accepted >= 2)
            if number == 1:
                first.close()
            produce(others_server, "t", b"kafka %d" % number)
            before_ours = addresses.ports["KAFKA"].accepted
            assert before_ours > 0
            with Producer(cluster.address(other)) as producer:
                producer.send("t", b"ours %d" % number).get(timeout=S)
            assert addresses.ports["KAFKA"].accepted > before_ours
            cluster.wait_same_end(tp)
        assert cluster.broker_epoch(moved) == epoch, "the broker was neither fenced nor registered again"
        assert cluster.znode(tp).state == state

        cluster.kill(moved)
        cluster.restart(moved)
        cluster.wait_serves(moved, since=epoch)
        wait_for("the brokers to be told", lambda: addresses_at(others_server)[moved] == second.of("KAFKA"))
        cluster.wait_in_sync(tp)
        # The admin client of before may send this over a connection to the killed process, and repeats no such request.
        change(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}), moved, None)
        wait_for("the brokers to be told", lambda: addresses_at(others_server) == before)
        second.close()
        produce(others_server, "t", b"the end")
        cluster.wait_same_end(tp)
        with Consumer(bootstrap_servers=cluster.address(other), auto_offset_reset="earliest") as consumer:
            consumer.assign([tp])
            values = [next(consumer).value for _ in range(5)]
        assert values == [b"kafka 0", b"ours 0", b"kafka 1", b"ours 1", b"the end"]

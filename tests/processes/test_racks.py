"""Brokers in three racks: where replicas go, and what Tidelog's commands and foreign clients see of the racks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import confluent_kafka as ck
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from cluster.zookeeper import znodes
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.command import Shell
from tests.processes.harness.waiting import wait_for
from tidelog.local.processes.process_placement import Placement

pytestmark = pytest.mark.slow

S = 60
RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b"}
REFUSED = (
    "not all brokers have a rack (without one: 5; with one: 1, 2, 3, 4); set broker_rack on each broker or on none"
)
#: The brokers of a local cluster share their settings. So each broker reads one more file, which has its rack.
_READ_RACK = 'exec "$@" --config "$0"'


def set_rack(directory: Path, broker_id: int, rack: str) -> Path:
    path = directory / f"rack-{broker_id}.toml"
    path.write_text(f"broker_rack = {json.dumps(rack)}\n")
    return path


def require_one_replica_in_each_rack(cluster: RunningCluster, topic: str, partitions: int) -> None:
    (described,) = cluster.admin.describe_topics([topic])
    racks = [sorted(RACKS[broker] for broker in partition.replicas) for partition in described.partitions]
    assert racks == [["a", "b", "c"]] * partitions


def create(client: AdminClient, topic: str, partitions: int) -> None:
    client.create_topics([NewTopic(topic, partitions, 3)])[topic].result(S)


def write_and_read_from_a_rack(cluster: RunningCluster, topic: str) -> None:
    """A consumer that names its rack (client.rack) still reads from leaders."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = ck.Producer(servers)
    for partition in range(6):
        producer.produce(topic, b"%d" % partition, partition=partition)
    assert producer.flush(S) == 0
    consumer = ck.Consumer(servers | {"group.id": "readers", "client.rack": "a", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        records: list[ck.Message] = []
        wait_for("all records", lambda: records.extend(consumer.consume(6, 1)) or len(records) >= 6)
    finally:
        consumer.close()
    assert sorted(record.value() for record in records) == [b"%d" % partition for partition in range(6)]


def test_three_racks_keep_replicas_apart_also_when_a_broker_is_drained(tmp_path: Path) -> None:
    files = {broker: set_rack(tmp_path, broker, rack) for broker, rack in (RACKS | {5: ""}).items()}
    places = {str(broker): Placement(prefix=("sh", "-c", _READ_RACK, str(path))) for broker, path in files.items()}
    with running_cluster(tmp_path, 5, places=places) as cluster:
        servers = ("--bootstrap-servers", cluster.bootstrap_servers)
        shell = Shell(tmp_path, cluster.local.data_dir)
        foreign = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

        outcome = shell.run("topic", "create", "t", "--partitions", "6", "--replication-factor", "3", *servers)
        assert outcome.status != 0 and REFUSED in outcome.complaint
        with pytest.raises(ck.KafkaException, match=re.escape(REFUSED)) as raised:
            create(foreign, "t", 6)
        assert raised.value.args[0].code() == ck.KafkaError.INVALID_REPLICATION_FACTOR
        assert "t" not in foreign.list_topics(timeout=S).topics

        epoch = cluster.broker_epoch(5)
        cluster.terminate(5)
        set_rack(tmp_path, 5, RACKS[5])
        cluster.restart(5)
        cluster.wait_serves(5, since=epoch)
        wait_for("all racks to be known", lambda: cluster.admin.describe_cluster().racks == RACKS)

        with cluster.zookeeper() as client:
            assert json.loads(client.get(znodes.broker_path(5))[0])["rack"] == "b"
        assert {each.id: each.rack for each in foreign.describe_cluster().result(S).nodes} == RACKS
        admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        assert {each["broker_id"]: each["rack"] for each in admin.describe_cluster()["brokers"]} == RACKS
        admin.close()
        listed = json.loads(shell.succeed("brokers", "--json", *servers))["brokers"]
        assert {each["id"]: each["rack"] for each in listed} == RACKS
        table = [line.split() for line in shell.succeed("brokers", *servers).decode().splitlines()]
        assert [(row[0], row[-1]) for row in table] == [("BROKER", "RACK"), *((str(b), r) for b, r in RACKS.items())]
        settings = shell.succeed("config", "describe", "--broker", "5", *servers).decode()
        assert ["broker_rack", "b"] in [line.split()[:2] for line in settings.splitlines()]

        create(foreign, "foreign", 6)
        require_one_replica_in_each_rack(cluster, "foreign", 6)
        write_and_read_from_a_rack(cluster, "foreign")
        require_one_replica_in_each_rack(cluster, "__consumer_offsets", 50)
        shell.succeed("topic", "create", "t", "--partitions", "6", "--replication-factor", "3", *servers)
        shell.succeed("topic", "alter", "t", "--partitions", "9", *servers)
        require_one_replica_in_each_rack(cluster, "t", 9)

        shell.succeed("topic", "reassign", "t", "--drain-broker", "1", *servers)
        wait_for("the reassignment to end", lambda: not cluster.admin.list_partition_reassignments(), S)
        require_one_replica_in_each_rack(cluster, "t", 9)
        (topic,) = cluster.admin.describe_topics(["t"])
        assert all(1 not in partition.replicas for partition in topic.partitions)

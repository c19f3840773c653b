"""The AdminClients of librdkafka, kafka-python and aiokafka describe the cluster, its topics and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import confluent_kafka as ck
import kafka
import kafka.admin
import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.clients.adapters.foreign_client import ForeignClient, Record
from tests.clients.adapters.registry import with_programs
from tests.clients.admin_clients import aiokafka_admin, kafka_python_admin
from tests.clients.cluster_under_test import ClusterUnderTest
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.waiting import wait_for
from tidelog import TopicPartition

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster

START_MS = 1_790_000_000_000


@pytest.fixture
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


@pytest.fixture
def python_admin(servers: str) -> Iterator[kafka.KafkaAdminClient]:
    with kafka_python_admin(servers) as client:
        yield client


def test_cluster_is_described_with_the_addresses_of_the_kafka_listener(
    cluster: ClusterUnderTest, admin: AdminClient, servers: str
) -> None:
    described = admin.describe_cluster().result(30)
    assert sorted(f"{node.host}:{node.port}" for node in described.nodes) == sorted(servers.split(","))
    assert described.controller.id in cluster.broker_ids
    assert described.cluster_id == admin.list_topics(timeout=30).cluster_id


def test_kafka_python_describes_the_same_cluster(admin: AdminClient, python_admin: kafka.KafkaAdminClient) -> None:
    theirs, described = python_admin.describe_cluster(), admin.describe_cluster().result(30)
    assert theirs["cluster_id"] == described.cluster_id
    assert {each["broker_id"] for each in theirs["brokers"]} == {node.id for node in described.nodes}


async def test_aiokafka_describes_the_same_cluster(cluster: ClusterUnderTest, servers: str) -> None:
    async with aiokafka_admin(servers) as client:
        described = await client.describe_cluster()
    assert {f"{each['host']}:{each['port']}" for each in described["brokers"]} == set(servers.split(","))
    assert described["controller_id"] in cluster.broker_ids


@pytest.mark.parametrize("name", with_programs())
def test_all_topics_are_listed(
    tidelog_cluster: RunningCluster, client: Callable[[str], ForeignClient], topic: str, name: str
) -> None:
    def listed() -> bool:
        ours = {each for each in tidelog_cluster.admin.list_topics() if not each.startswith("__")}
        theirs = {each for each in client(name).topics() if not each.startswith("__")}
        return topic in theirs and theirs == ours

    # A broker may learn later than another that a topic was created or deleted.
    wait_for("the same topics for both clients", listed)


def test_topic_is_described_with_leader_and_replicas(cluster: ClusterUnderTest, admin: AdminClient, topic: str) -> None:
    described = admin.describe_topics(ck.TopicCollection([topic]))[topic].result(30)
    (partition,) = described.partitions
    assert partition.leader.id == cluster.leader(TopicPartition(topic, 0))
    assert {node.id for node in partition.replicas} == {node.id for node in partition.isr} == set(cluster.broker_ids)
    assert (described.name, described.is_internal) == (topic, False)


def test_kafka_python_describes_topics_with_leader_and_replicas(
    cluster: ClusterUnderTest, python_admin: kafka.KafkaAdminClient, topic: str
) -> None:
    (described,) = python_admin.describe_topics([topic])
    (partition,) = described["partitions"]
    assert (described["name"], described["is_internal"], described["error_code"]) == (topic, False, 0)
    assert partition["leader_id"] == cluster.leader(TopicPartition(topic, 0))
    assert set(partition["replica_nodes"]) == set(partition["isr_nodes"]) == set(cluster.broker_ids)


async def test_aiokafka_describes_topics_with_leader_and_replicas(
    cluster: ClusterUnderTest, servers: str, topic: str
) -> None:
    async with aiokafka_admin(servers) as client:
        (described,) = await client.describe_topics([topic])
    (partition,) = described["partitions"]
    assert (described["topic"], described["is_internal"], described["error_code"]) == (topic, False, 0)
    assert partition["leader"] == cluster.leader(TopicPartition(topic, 0))
    assert set(partition["replicas"]) == set(partition["isr"]) == set(cluster.broker_ids)


def test_offsets_are_listed_by_every_specification(
    client: Callable[[str], ForeignClient], admin: AdminClient, topic: str
) -> None:
    times = (0, 3_000, 9_000, 4_000)
    records = [Record(b"%d" % each, timestamp_ms=START_MS + each) for each in times]
    client("confluent-kafka").produce(topic, records)
    tp = ck.TopicPartition(topic, 0)
    for specification, offset in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 4),
        (OffsetSpec.max_timestamp(), 2),
        (OffsetSpec.for_timestamp(START_MS + 3_500), 2),
    ):
        assert admin.list_offsets({tp: specification})[tp].result(30).offset == offset


def test_kafka_python_lists_offsets_by_every_specification(
    client: Callable[[str], ForeignClient], python_admin: kafka.KafkaAdminClient, topic: str
) -> None:
    times = (0, 3_000, 9_000, 4_000)
    client("kafka-python").produce(topic, [Record(b"%d" % each, timestamp_ms=START_MS + each) for each in times])
    tp, specification = kafka.TopicPartition(topic, 0), kafka.admin.OffsetSpec
    for asked, found in (
        (specification.EARLIEST, (0, -1)),
        (specification.LATEST, (4, -1)),
        (specification.MAX_TIMESTAMP, (2, START_MS + 9_000)),
        (START_MS + 3_500, (2, START_MS + 9_000)),
    ):
        listed = python_admin.list_partition_offsets({tp: asked})[tp]
        assert (listed.offset, listed.timestamp) == found


def test_unknown_topic_is_reported_as_unknown(admin: AdminClient, python_admin: kafka.KafkaAdminClient) -> None:
    with pytest.raises(ck.KafkaException) as caught:
        admin.describe_topics(ck.TopicCollection(["absent"]))["absent"].result(30)
    assert caught.value.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART
    (described,) = python_admin.describe_topics(["absent"])
    assert described["error_code"] == ck.KafkaError.UNKNOWN_TOPIC_OR_PART

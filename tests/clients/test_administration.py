"""The AdminClients of librdkafka, kafka-python and aiokafka change topics, settings, records, groups and replicas."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import aiokafka
import confluent_kafka as ck
import kafka
import kafka.admin
import kafka.errors
import pytest
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from confluent_kafka.admin import ConfigSource as CkConfigSource

from tests.clients.adapters.foreign_client import ForeignClient, Record
from tests.clients.admin_clients import aiokafka_admin, kafka_python_admin
from tests.clients.group_readers import KAFKA_PYTHON_POLL_MS
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.waiting import wait_for
from tidelog import ConfigResource as OurConfigResource
from tidelog import TopicPartition
from tidelog.protocol.admin_messages import ConfigSource

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster

S = 60  # a machine whose cores are busy


@pytest.fixture
def confluent(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


@pytest.fixture
def python(servers: str) -> Iterator[kafka.KafkaAdminClient]:
    with kafka_python_admin(servers) as client:
        yield client


def configs_of(cluster: RunningCluster, topic: str) -> dict[str, str | None]:
    """Return the settings that the topic has of its own, as our own client sees them."""
    resource = OurConfigResource.topic(topic)
    described = cluster.admin.describe_configs([resource])[resource]
    return {name: entry.value for name, entry in described.items() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG}


def partitions_of(cluster: RunningCluster, topic: str) -> list[list[int]]:
    """Return the replicas of each partition."""
    (described,) = cluster.admin.describe_topics([topic])
    return [list(each.replicas) for each in described.partitions]


def broker_setting(confluent: AdminClient, broker: str, name: str) -> str:
    """Return the setting of a running broker, as confluent-kafka sees it."""
    resource = ConfigResource(ResourceType.BROKER, broker)
    value: str = confluent.describe_configs([resource])[resource].result(S)[name].value
    return value


def commit(servers: str, group: str, topic: str, offset: int) -> None:
    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": group})
    with closing(consumer):
        consumer.commit(offsets=[ck.TopicPartition(topic, 0, offset)], asynchronous=False)


@pytest.fixture
def written(client: Callable[[str], ForeignClient], topic: str) -> str:
    """Return a topic with ten records."""
    client("confluent-kafka").produce(topic, [Record(b"%d" % number) for number in range(10)])
    return topic


# --- confluent-kafka ---------------------------------------------------------------------------------


def test_confluent_kafka_creates_extends_and_deletes_topics(cluster: RunningCluster, confluent: AdminClient) -> None:
    new = NewTopic("by-confluent", 2, 3, config={"retention.ms": "60000"})
    confluent.create_topics([new], validate_only=True)["by-confluent"].result(S)
    assert "by-confluent" not in cluster.admin.list_topics()
    confluent.create_topics([new])["by-confluent"].result(S)
    assert configs_of(cluster, "by-confluent") == {"retention.ms": "60000"}
    with pytest.raises(ck.KafkaException) as refused:
        confluent.create_topics([new])["by-confluent"].result(S)
    assert refused.value.args[0].code() == ck.KafkaError.TOPIC_ALREADY_EXISTS
    confluent.create_partitions([NewPartitions("by-confluent", 3, [[2, 3, 1]])])["by-confluent"].result(S)
    assert partitions_of(cluster, "by-confluent")[2] == [2, 3, 1]
    confluent.delete_topics(["by-confluent"])["by-confluent"].result(S)
    assert "by-confluent" not in cluster.admin.list_topics()


def test_confluent_kafka_changes_settings_with_both_apis(
    cluster: RunningCluster, confluent: AdminClient, topic: str
) -> None:
    entries = [
        ConfigEntry("retention.ms", "7", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("min.insync.replicas", None, incremental_operation=AlterConfigOpType.DELETE),
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    confluent.incremental_alter_configs([resource])[resource].result(S)
    assert configs_of(cluster, topic) == {"retention.ms": "7", "cleanup.policy": "delete,compact"}
    described = confluent.describe_configs([resource])[resource].result(S)
    assert (described["retention.ms"].value, described["retention.ms"].source) == (
        "7",
        CkConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    )
    replaced = ConfigResource(ResourceType.TOPIC, topic, set_config={"flush.ms": "9"})
    confluent.alter_configs([replaced])[replaced].result(S)
    assert configs_of(cluster, topic) == {"flush.ms": "9"}
    broker = ConfigResource(ResourceType.BROKER, "1")
    settings = confluent.describe_configs([broker])[broker].result(S)
    assert settings["auto.create.topics.enable"].value == "true" and settings["auto.create.topics.enable"].is_read_only


def test_confluent_kafka_changes_settings_of_running_brokers(confluent: AdminClient) -> None:
    def change(broker: str, name: str, value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entries = [ConfigEntry(name, value, incremental_operation=operation)]
        resource = ConfigResource(ResourceType.BROKER, broker, incremental_configs=entries)
        confluent.incremental_alter_configs([resource])[resource].result(S)

    def shown(broker: str, name: str) -> tuple[str, int]:
        asked = ConfigResource(ResourceType.BROKER, broker)
        entry = confluent.describe_configs([asked])[asked].result(S)[name]
        return entry.value, entry.source

    own, default = CkConfigSource.DYNAMIC_BROKER_CONFIG.value, CkConfigSource.DEFAULT_CONFIG.value
    change("2", "max.connections", "9000")
    change("2", "log.flush.interval.ms", "86400000")
    assert shown("2", "max.connections") == ("9000", own)
    assert shown("1", "max.connections") == ("10000", default)
    with pytest.raises(ck.KafkaException, match="takes this setting from its file"):
        change("2", "num.partitions", "5")
    for name in ("max.connections", "log.flush.interval.ms", "leader.replication.throttled.rate"):
        change("2", name, None)
    assert shown("2", "max.connections") == ("10000", default)


def test_confluent_kafka_deletes_records(
    client: Callable[[str], ForeignClient], confluent: AdminClient, written: str
) -> None:
    deleted = confluent.delete_records([ck.TopicPartition(written, 0, 4)])
    assert [future.result(S).low_watermark for future in deleted.values()] == [4]
    assert client("confluent-kafka").offset_range(written) == (4, 10)


def test_confluent_kafka_shows_changes_and_deletes_groups(confluent: AdminClient, servers: str, written: str) -> None:
    commit(servers, "by-confluent", written, 3)
    listed = confluent.list_consumer_groups().result(S)
    assert ("by-confluent", True) in {(each.group_id, each.is_simple_consumer_group) for each in listed.valid}
    assert not listed.errors
    described = confluent.describe_consumer_groups(["by-confluent"])["by-confluent"].result(S)
    assert (described.state, described.members) == (ck.ConsumerGroupState.EMPTY, [])

    def offsets() -> list[int]:
        asked = ck.ConsumerGroupTopicPartitions("by-confluent")
        found = confluent.list_consumer_group_offsets([asked])["by-confluent"].result(S)
        return [each.offset for each in found.topic_partitions]

    assert offsets() == [3]
    moved = ck.ConsumerGroupTopicPartitions("by-confluent", [ck.TopicPartition(written, 0, 8)])
    confluent.alter_consumer_group_offsets([moved])["by-confluent"].result(S)
    assert offsets() == [8]
    confluent.delete_consumer_groups(["by-confluent"])["by-confluent"].result(S)
    assert "by-confluent" not in {each.group_id for each in confluent.list_consumer_groups().result(S).valid}


def test_confluent_kafka_learns_that_no_election_is_needed(confluent: AdminClient, topic: str) -> None:
    partition = ck.TopicPartition(topic, 0)
    elected = confluent.elect_leaders(ck.ElectionType.PREFERRED, [partition]).result(S)
    assert [error and error.code() for error in elected.values()] == [ck.KafkaError.ELECTION_NOT_NEEDED]


# --- kafka-python ------------------------------------------------------------------------------------


def test_kafka_python_creates_extends_and_deletes_topics(
    cluster: RunningCluster, python: kafka.KafkaAdminClient
) -> None:
    new = {"by-python": {"num_partitions": 2, "replication_factor": 3, "configs": {"retention.ms": "60000"}}}
    checked = python.create_topics(new, validate_only=True)
    assert checked["topics"][0]["configs"]["retention.ms"]["value"] == "60000"
    assert "by-python" not in cluster.admin.list_topics()
    python.create_topics(new)
    assert configs_of(cluster, "by-python") == {"retention.ms": "60000"}
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        python.create_topics(new)
    python.create_partitions({"by-python": 5})
    assert len(partitions_of(cluster, "by-python")) == 5
    python.delete_topics(["by-python"])
    assert "by-python" not in python.list_topics()


def test_kafka_python_deletes_a_topic_by_its_id(
    cluster: RunningCluster, python: kafka.KafkaAdminClient, topic: str
) -> None:
    (described,) = python.describe_topics([topic])
    topic_id = uuid.UUID(str(described["topic_id"]))
    python.delete_topics([topic_id])
    assert topic not in cluster.admin.list_topics()
    with pytest.raises(kafka.errors.UnknownTopicIdError):
        python.delete_topics([topic_id])


def test_kafka_python_changes_settings(cluster: RunningCluster, python: kafka.KafkaAdminClient, topic: str) -> None:
    def resource(configs: Any) -> kafka.admin.ConfigResource:
        return kafka.admin.ConfigResource("TOPIC", topic, configs=configs)

    python.alter_configs([resource({"retention.ms": "7", "cleanup.policy": ("APPEND", "compact")})])
    own = {"retention.ms": "7", "cleanup.policy": "delete,compact", "min.insync.replicas": "2"}
    assert configs_of(cluster, topic) == own
    described = python.describe_configs([resource(None)])["topic"][topic]
    assert {name: described[name]["value"] for name in own} == own
    python.reset_configs([resource(["retention.ms", "cleanup.policy"])])
    assert configs_of(cluster, topic) == {"min.insync.replicas": "2"}


def test_kafka_python_changes_settings_of_running_brokers(
    confluent: AdminClient, python: kafka.KafkaAdminClient
) -> None:
    def resource(configs: Any) -> kafka.admin.ConfigResource:
        return kafka.admin.ConfigResource("BROKER", "3", configs=configs)

    def own() -> dict[str, str]:
        """Return the settings that differ from those of the broker's file."""
        described = python.describe_configs([resource(None)], config_filter="modified")["broker"]["3"]
        return {name: entry["value"] for name, entry in described.items()}

    python.alter_configs([resource({"max.connections": "9001"})])
    assert own()["max.connections"] == broker_setting(confluent, "3", "max.connections") == "9001"
    python.reset_configs([resource(["max.connections"])])
    assert "max.connections" not in own()
    assert broker_setting(confluent, "3", "max.connections") == "10000"


def test_kafka_python_deletes_records(
    client: Callable[[str], ForeignClient], python: kafka.KafkaAdminClient, written: str
) -> None:
    python.delete_records({kafka.TopicPartition(written, 0): 4})
    assert client("kafka-python").offset_range(written) == (4, 10)


def test_kafka_python_shows_changes_and_deletes_groups(
    python: kafka.KafkaAdminClient, servers: str, written: str
) -> None:
    partition = kafka.TopicPartition(written, 0)
    commit(servers, "by-python", written, 3)
    assert "by-python" in {each["group_id"] for each in python.list_groups()}
    assert python.describe_groups(["by-python"])["by-python"]["group_state"] == "Empty"

    def offset() -> int | None:
        found = python.list_group_offsets("by-python")["by-python"].get(partition)
        return None if found is None else int(found.offset)

    assert offset() == 3
    python.alter_group_offsets("by-python", {partition: kafka.structs.OffsetAndMetadata(5, "", -1)})
    assert offset() == 5
    python.reset_group_offsets("by-python", {partition: kafka.admin.OffsetSpec.LATEST})
    assert offset() == 10
    python.delete_group_offsets("by-python", [partition])
    assert offset() is None
    commit(servers, "by-python", written, 3)
    python.delete_groups(["by-python"])
    assert "by-python" not in {each["group_id"] for each in python.list_groups()}


def test_kafka_python_removes_a_static_member(python: kafka.KafkaAdminClient, servers: str, topic: str) -> None:
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=servers, group_id="static", group_instance_id="one")
    with closing(consumer):
        # This client may join the group before it knows the topic, and then keeps an assignment without partitions.
        wait_for("the topic's metadata", lambda: consumer.partitions_for_topic(topic), S)
        wait_for("an assignment", lambda: consumer.poll(KAFKA_PYTHON_POLL_MS) or consumer.assignment(), S)
        (member,) = python.describe_groups(["static"])["static"]["members"]
        assert member["group_instance_id"] == "one"
        python.remove_group_members("static", [kafka.admin.MemberToRemove(group_instance_id="one")])
        assert python.describe_groups(["static"])["static"]["members"] == []


def test_kafka_python_lists_offsets_and_log_directories(
    cluster: RunningCluster, python: kafka.KafkaAdminClient, written: str
) -> None:
    partition = kafka.TopicPartition(written, 0)
    (end,) = python.list_partition_offsets({partition: kafka.admin.OffsetSpec.LATEST}).values()
    assert end.offset == 10
    cluster.wait_same_end(TopicPartition(written, 0))
    dirs = python.describe_log_dirs([written])
    sizes = [each["partition_size"] for broker in dirs for log in broker["log_dirs"] for topic in log["topics"]
             for each in topic["partitions"] if topic["name"] == written]  # fmt: skip
    assert len(sizes) == 3 and min(sizes) > 0
    here, there = (dirs[0]["log_dirs"][0]["log_dir"], "/nowhere")
    replica = kafka.structs.TopicPartitionReplica(written, 0, dirs[0]["broker"])
    assert python.alter_replica_log_dirs({replica: here}) == {replica: kafka.errors.NoError}
    assert python.alter_replica_log_dirs({replica: there}) == {replica: kafka.errors.LogDirNotFoundError}


def test_kafka_python_moves_replicas_and_elects_leaders(
    cluster: RunningCluster, python: kafka.KafkaAdminClient
) -> None:
    partition, ours = kafka.TopicPartition("moved", 0), TopicPartition("moved", 0)
    python.create_topics({"moved": {"assignments": {0: [1, 2]}}})
    assert python.list_partition_reassignments() == {}
    python.alter_partition_reassignments({partition: [3, 2]})
    wait_for("the reassignment to end", lambda: python.list_partition_reassignments() == {}, S)
    assert partitions_of(cluster, "moved") == [[3, 2]]
    with pytest.raises(kafka.errors.NoReassignmentInProgressError):
        raise python.alter_partition_reassignments({partition: None})[partition]
    wait_for("broker 3 to be in sync", lambda: set(cluster.znode(ours).state.isr) == {2, 3}, S)
    python.alter_partition_reassignments({partition: [2, 3]})
    assert cluster.leader(ours) == 3, "another preferred leader does not lead by itself"
    python.elect_leaders(0, {"moved": [0]})
    assert cluster.leader(ours) == 2


# --- aiokafka ----------------------------------------------------------------------------------------


async def test_aiokafka_changes_topics_and_settings(cluster: RunningCluster, servers: str) -> None:
    async with aiokafka_admin(servers) as client:
        new = AioNewTopic("by-aio", 2, 3, topic_configs={"retention.ms": "60000"})
        await client.create_topics([new])
        assert configs_of(cluster, "by-aio") == {"retention.ms": "60000"}
        again = await client.create_topics([new])
        assert [code for _, code, *_ in again.topic_errors] == [36], "TOPIC_ALREADY_EXISTS"
        await client.create_partitions({"by-aio": AioNewPartitions(4)})
        assert len(partitions_of(cluster, "by-aio")) == 4
        resource = AioConfigResource(AioConfigResourceType.TOPIC, "by-aio", {"retention.ms": "7"})
        await client.alter_configs([resource])
        assert configs_of(cluster, "by-aio") == {"retention.ms": "7"}
        (described,) = await client.describe_configs([AioConfigResource(AioConfigResourceType.TOPIC, "by-aio")])
        assert ("retention.ms", "7") in {tuple(entry[:2]) for entry in described.resources[0][4]}
        await client.delete_topics(["by-aio"])
        assert "by-aio" not in await client.list_topics()


async def test_aiokafka_changes_settings_of_running_brokers(servers: str, confluent: AdminClient) -> None:
    async with aiokafka_admin(servers) as client:

        async def replace(configs: dict[str, str]) -> str:
            """Replace the broker's own settings, and return what `max.connections` is then."""
            resource = AioConfigResource(AioConfigResourceType.BROKER, "3", configs)
            for response in await client.alter_configs([resource]):
                assert [code for code, *_ in response.resources if code] == []
            return broker_setting(confluent, "3", "max.connections")

        assert await replace({"max.connections": "9002"}) == "9002"
        asked = AioConfigResource(AioConfigResourceType.BROKER, "3")
        answers = [entry for each in await client.describe_configs([asked]) for entry in each.resources]
        assert ("max.connections", "9002") in {tuple(entry[:2]) for entries in answers for entry in entries[4]}
        assert await replace({}) == "10000"


async def test_aiokafka_deletes_records_and_shows_groups(
    client: Callable[[str], ForeignClient], servers: str, written: str
) -> None:
    partition = aiokafka.TopicPartition(written, 0)
    await asyncio.to_thread(commit, servers, "by-aio", written, 3)
    async with aiokafka_admin(servers) as admin:
        assert (await admin.delete_records({partition: RecordsToDelete(4)})) == {partition: 4}
        assert (await admin.list_consumer_group_offsets("by-aio"))[partition].offset == 3
        assert "by-aio" in {group for group, *_ in await admin.list_consumer_groups()}
        (described,) = await admin.describe_consumer_groups(["by-aio"])
        assert described.groups[0][1:3] == ("by-aio", "Empty")
    assert await asyncio.to_thread(client("aiokafka").offset_range, written) == (4, 10)

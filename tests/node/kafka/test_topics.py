"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords of Kafka clients, at a real controller."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node.client_requests import TP
from tests.node.controller_cluster import Cluster, run
from tests.node.kafka.admin_client import KafkaClient, client_of
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    NotControllerError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from tidelog.protocol.kafka.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from tidelog.protocol.kafka.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tidelog.protocol.kafka.primitives import ZERO_UUID, uuid_to_text

SOME_ID = b"0123456789abcdef"
#: What a response says of authorized operations that were not asked for.
NOT_ASKED = -(2**31)
#: READ to DESCRIBE (3 to 8), DESCRIBE_CONFIGS (10) and ALTER_CONFIGS (11).
ON_TOPICS = 0b110111111000
#: CREATE (5), ALTER (7), DESCRIBE (8), CLUSTER_ACTION (9), the two of CONFIGS, and IDEMPOTENT_WRITE (12).
ON_CLUSTER = 0b1111110100000


def topic(
    name: str, partitions: int = -1, *assignments: tuple[int, tuple[int, ...]], factor: int = -1, **configs: str | None
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=tuple(CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in assignments),
        configs=tuple(CreatableTopicConfig(name=key.replace("_", "."), value=text) for key, text in configs.items()),
    )


async def create(client: KafkaClient, version: int, *topics: CreatableTopic, dry: bool = False) -> list[Any]:
    request = CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=dry)
    return list((await client.ask(request, version)).topics)


def by_name(*names: str) -> tuple[DeleteTopicState, ...]:
    return tuple(DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names)


async def delete(client: KafkaClient, version: int, *names: str) -> list[Any]:
    request = DeleteTopicsRequest(topic_names=names, timeout_ms=10_000)
    if version >= 6:
        request = DeleteTopicsRequest(topics=by_name(*names), timeout_ms=10_000)
    return list((await client.ask(request, version)).responses)


def test_each_version_of_create_topics_carries_what_it_knows() -> None:
    async def story(cluster: Cluster) -> None:
        client = client_of(cluster.brokers[1])
        for version in range(2, 8):
            (created,) = await create(client, version, topic(f"t{version}", 2, factor=3, retention_ms="5"))
            assert (created.name, created.error_code, created.error_message) == (f"t{version}", 0, None)
            assert (created.num_partitions, created.replication_factor) == ((2, 3) if version >= 5 else (-1, -1))
            assert (created.topic_id != ZERO_UUID) == (version >= 7)
            configs = {each.name: (each.value, each.config_source) for each in created.configs}
            if version < 5:
                assert configs == {}
            else:
                assert configs["retention.ms"] == ("5", 1)
                assert configs["cleanup.policy"] == ("delete", 5)

    run(story)


def test_topics_are_refused_one_by_one_with_their_messages() -> None:
    async def story(cluster: Cluster) -> None:
        client = client_of(cluster.brokers[1])
        await cluster.create("old")
        results = await create(
            client,
            7,
            topic("new", 1),
            topic("old", 1),
            topic("zero", 0),
            topic("null", 1, retention_ms=None),
            topic("twice", -1, (0, (1,)), (0, (2,))),
            topic("placed", -1, (0, (3, 1)), (1, (2, 3))),
        )
        assert {each.name: each.error_code for each in results} == {
            "new": 0,
            "old": TopicAlreadyExistsError.code,
            "zero": InvalidPartitionsError.code,
            "null": InvalidConfigError.code,
            "twice": InvalidReplicaAssignmentError.code,
            "placed": 0,
        }
        assert all(each.error_message for each in results if each.error_code)
        assert (results[-1].num_partitions, results[-1].replication_factor) == (2, 2)

    run(story)


def test_topic_that_is_only_validated_is_not_created() -> None:
    async def story(cluster: Cluster) -> None:
        client = client_of(cluster.brokers[1])
        (checked,) = await create(client, 7, topic("t", 4, retention_ms="5"), dry=True)
        assert (checked.error_code, checked.num_partitions, checked.topic_id) == (0, 4, ZERO_UUID)
        configs = {each.name: (each.value, each.config_source) for each in checked.configs}
        assert (configs["retention.ms"], configs["cleanup.policy"]) == (("5", 1), ("delete", 5))
        assert [each.error_code for each in await delete(client, 6, "t")] == [UnknownTopicOrPartitionError.code]

    run(story)


def test_other_brokers_answer_that_they_are_not_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        client, code = client_of(cluster.brokers[2]), NotControllerError.code
        assert [each.error_code for each in await create(client, 7, topic("u", 1))] == [code]
        null = topic("v", 1, retention_ms=None)
        refused = await create(client, 2, topic("u", 1), null)
        assert [each.error_code for each in refused] == [code, code], "the client looks for the controller again"
        for version in (1, 6):
            assert [each.error_code for each in await delete(client, version, "t", "u")] == [code, code]
        unknown = DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=SOME_ID),), timeout_ms=1000)
        (outcome,) = (await client.ask(unknown, 6)).responses
        assert (outcome.name, outcome.topic_id, outcome.error_code) == (None, SOME_ID, code)
        more = CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name="t", count=2, assignments=None),), timeout_ms=1000, validate_only=False
        )
        (extended,) = (await client.ask(more, 3)).results
        assert (extended.name, extended.error_code) == ("t", code) and extended.error_message

    run(story)


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        client = client_of(cluster.brokers[1])
        await cluster.create("t")
        done, unknown = await delete(client, version, "t", "u")
        assert (done.name, done.error_code, done.error_message) == ("t", 0, None)
        assert (unknown.name, unknown.error_code) == ("u", UnknownTopicOrPartitionError.code)
        assert bool(unknown.error_message) == (version >= 5)
        assert (done.topic_id != ZERO_UUID) == (version >= 6) and unknown.topic_id == ZERO_UUID
        assert not cluster.exists("/brokers/topics/t")

    run(story)


def test_topics_are_deleted_by_id_from_version_6_on() -> None:
    async def story(cluster: Cluster) -> None:
        client = client_of(cluster.brokers[1])
        ids = {each.name: each.topic_id for each in await create(client, 7, topic("t", 1), topic("u", 1))}
        wanted = (
            DeleteTopicState(topic_id=ids["t"]),
            DeleteTopicState(topic_id=SOME_ID),
            DeleteTopicState(name="u", topic_id=ids["u"]),
            DeleteTopicState(topic_id=ZERO_UUID),
        )
        answer = await client.ask(DeleteTopicsRequest(topics=wanted, timeout_ms=10_000), 6)
        assert [(each.name, each.topic_id, each.error_code) for each in answer.responses] == [
            ("t", ids["t"], 0),
            (None, SOME_ID, UnknownTopicIdError.code),
            ("u", ids["u"], InvalidRequestError.code),
            (None, ZERO_UUID, InvalidRequestError.code),
        ]
        both = (DeleteTopicState(topic_id=ids["u"]), *by_name("u"))
        answer = await client.ask(DeleteTopicsRequest(topics=both, timeout_ms=10_000), 6)
        assert [each.error_code for each in answer.responses] == [InvalidRequestError.code] * 2
        assert cluster.exists("/brokers/topics/u") and not cluster.exists("/brokers/topics/t")

    run(story)


def test_topic_that_was_created_again_is_not_deleted_by_its_old_id() -> None:
    async def story(cluster: Cluster) -> None:
        client, late = client_of(cluster.brokers[1]), client_of(cluster.brokers[1])
        (old,) = await create(client, 7, topic("t", 1))
        await late.ask(MetadataRequest(topics=None), 12)
        late.hears_news = False
        await delete(client, 6, "t")
        (new,) = await create(client, 7, topic("t", 1))
        by_id = DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=old.topic_id),), timeout_ms=10_000)
        (outcome,) = (await late.ask(by_id, 6)).responses
        assert (outcome.topic_id, outcome.error_code) == (old.topic_id, UnknownTopicIdError.code)
        kept = await cluster.brokers[1].zk_client.read_topic("t")
        assert kept is not None and kept.topic_id == uuid_to_text(new.topic_id)

    run(story)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_with_or_without_their_replicas(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        client = client_of(cluster.brokers[1])
        await cluster.create("t", assignment={0: (1, 2)})
        await cluster.create("u", assignment={0: (1, 2)})
        replicas = tuple(CreatePartitionsAssignment(broker_ids=ids) for ids in ((2, 3), (3, 1)))
        request = CreatePartitionsRequest(
            topics=(
                CreatePartitionsTopic(name="t", count=3, assignments=replicas),
                CreatePartitionsTopic(name="u", count=2, assignments=None),
                CreatePartitionsTopic(name="gone", count=2, assignments=None),
            ),
            timeout_ms=10_000,
            validate_only=False,
        )
        results = (await client.ask(request, version)).results
        assert [(each.name, each.error_code) for each in results] == [
            ("t", 0),
            ("u", 0),
            ("gone", UnknownTopicOrPartitionError.code),
        ]
        extended = await cluster.brokers[1].zk_client.read_topic("t")
        assert extended is not None and dict(extended.partitions) == {0: (1, 2), 1: (2, 3), 2: (3, 1)}
        wrong = CreatePartitionsTopic(name="u", count=5, assignments=replicas)
        request = CreatePartitionsRequest(topics=(wrong,), timeout_ms=10_000, validate_only=True)
        (refused,) = (await client.ask(request, version)).results
        assert refused.error_code == InvalidReplicaAssignmentError.code and refused.error_message

    run(story)


@on_virtual_time
async def test_records_are_deleted_by_their_leader_only() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        for _ in range(5):
            await cluster.produce(b"x")

        async def ask(broker_id: int, version: int, *offsets: int, partition: int = 0) -> list[tuple[int, int]]:
            node = cluster.nodes[broker_id]
            parts = tuple(DeleteRecordsPartition(partition_index=partition, offset=offset) for offset in offsets)
            request = DeleteRecordsRequest(
                topics=(DeleteRecordsTopic(name=TP.topic, partitions=parts),), timeout_ms=5000
            )
            (found,) = (await KafkaClient(node.handlers.handle, node.metadata).ask(request, version)).topics
            assert found.name == TP.topic
            return [(each.error_code, each.low_watermark) for each in found.partitions]

        for version in range(3):
            assert await ask(1, version, version + 1) == [(0, version + 1)]
        assert await ask(1, 2, 99) == [(OffsetOutOfRangeError.code, -1)]
        assert await ask(2, 2, 4) == [(NotLeaderOrFollowerError.code, -1)]
        assert await ask(1, 2, 4, partition=7) == [(UnknownTopicOrPartitionError.code, -1)]
        assert await ask(1, 0, -1) == [(0, 5)]


def test_client_that_asks_is_told_all_operations_on_topics_and_cluster() -> None:
    async def story(cluster: Cluster) -> None:
        client = client_of(cluster.brokers[1])
        await cluster.create("t")
        named = tuple(MetadataRequestTopic(name=name, topic_id=ZERO_UUID) for name in ("t", "missing"))

        async def operations(version: int, **asks: bool) -> tuple[list[int], int]:
            answer = await client.ask(MetadataRequest(topics=named, **asks), version)
            return [each.topic_authorized_operations for each in answer.topics], answer.cluster_authorized_operations

        for version in range(8, 13):
            assert await operations(version) == ([NOT_ASKED, NOT_ASKED], NOT_ASKED)
            asks_topics = await operations(version, include_topic_authorized_operations=True)
            assert asks_topics == ([ON_TOPICS, ON_TOPICS], NOT_ASKED)
        for version in range(8, 11):
            asks_cluster = await operations(version, include_cluster_authorized_operations=True)
            assert asks_cluster == ([NOT_ASKED, NOT_ASKED], ON_CLUSTER)
        for version in range(2):
            for asks, expected in ((False, NOT_ASKED), (True, ON_CLUSTER)):
                found = await client.ask(DescribeClusterRequest(include_cluster_authorized_operations=asks), version)
                assert found.cluster_authorized_operations == expected
        page = await client.ask(DescribeTopicPartitionsRequest(topics=(TopicRequest(name="t"),)), 0)
        assert [each.topic_authorized_operations for each in page.topics] == [ON_TOPICS]

    run(story)

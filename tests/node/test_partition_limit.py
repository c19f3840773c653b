"""Commands that would give a broker too many partitions are refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cluster.state import TopicAssignment
from cluster.zookeeper import znodes
from node.controller import topic_validation
from node.metadata.internal_topics import InternalTopicRules
from node.settings.machine_limits import memory_of_machine, partitions_for
from tests.node.controller_cluster import Cluster, run
from tidelog.errors import PolicyViolationError
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import TopicPartition
from tidelog.protocol.messages import CreateTopicsRequest, NewTopic
from tidelog.protocol.partition_messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    NewPartitions,
    WantedReplicas,
)

MOST = 6


def run_with_limit(story: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    """Run the story in a cluster of three brokers that may hold MOST partitions each."""
    run(story, max_broker_partitions=MOST)


@pytest.mark.parametrize("validate_only", [False, True])
def test_topic_beyond_the_limit_is_not_created(validate_only: bool) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("a", num_partitions=4, replication_factor=3)
        new = (NewTopic("b", 3, 3), NewTopic("c", 2, 3))
        request = CreateTopicsRequest(new, timeout_ms=5000, validate_only=validate_only)
        refused, created = (await cluster.controller.topics.create_topics(request)).topics
        assert (refused.error_code, created.error_code) == (PolicyViolationError.code, 0)
        assert refused.error_message == (
            "topic 'b': broker 1 cannot take 3 more partitions, because it holds 4 and may hold 6 "
            "(max.broker.partitions); choose fewer partitions or other brokers, add brokers, or raise the setting"
        )
        assert not cluster.exists(znodes.topic_path("b"))
        assert cluster.exists(znodes.topic_path("c")) is not validate_only

    run_with_limit(story)


def test_partitions_beyond_the_limit_are_not_added() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t", num_partitions=4, replication_factor=3)
        for count, code in ((7, PolicyViolationError.code), (6, 0)):
            request = CreatePartitionsRequest((NewPartitions("t", count),), timeout_ms=5000)
            (answer,) = (await cluster.controller.partitions.create_partitions(request)).topics
            assert answer.error_code == code
            topic = await cluster.brokers[1].zk_client.read_topic("t")
            assert topic is not None and len(topic.partitions) == (4 if code else 6)

    run_with_limit(story)


def test_replicas_beyond_the_limit_are_not_reassigned() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("full", assignment=dict.fromkeys(range(5), (1,)))
        await cluster.create("t", assignment=dict.fromkeys(range(3), (2,)))
        wanted = tuple(WantedReplicas("t", number, (1,)) for number in range(3))
        answer = await cluster.controller.partitions.alter_reassignments(
            AlterPartitionReassignmentsRequest(wanted, timeout_ms=5000)
        )
        refused = PolicyViolationError.code
        assert [each.error_code for each in answer.partitions] == [0, refused, refused]
        topic = await cluster.brokers[1].zk_client.read_topic("t")
        assert topic is not None and [1 in topic.partitions[number] for number in range(3)] == [True, False, False]

    run_with_limit(story)


def test_full_broker_gets_no_replica_and_stops_no_topic() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("full", assignment=dict.fromkeys(range(MOST), (1,)))
        await cluster.create("t", num_partitions=3, replication_factor=2)
        request = CreatePartitionsRequest((NewPartitions("t", 5),), timeout_ms=5000)
        (answer,) = (await cluster.controller.partitions.create_partitions(request)).topics
        assert answer.error_code == 0
        topic = await cluster.brokers[1].zk_client.read_topic("t")
        assert topic is not None and [set(replicas) for replicas in topic.partitions.values()] == [{2, 3}] * 5
        new = (NewTopic("three", 1, 3), NewTopic("named", assignment={0: (1,)}))
        created = await cluster.controller.topics.create_topics(CreateTopicsRequest(new, timeout_ms=5000))
        assert [each.error_code for each in created.topics] == [PolicyViolationError.code] * 2
        assert "broker 1 cannot take 1 more partitions" in (created.topics[0].error_message or "")

    run_with_limit(story)


def test_assignment_that_is_too_large_for_a_znode_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t", assignment=dict.fromkeys(range(3), (1,)))
        before = await cluster.brokers[1].zk_client.read_topic("t")
        assert before is not None
        monkeypatch.setattr(topic_validation, "MAX_ASSIGNMENT_BYTES", len(znodes.encode_topic(before)))
        commands = cluster.controller.partitions
        extended = await commands.create_partitions(CreatePartitionsRequest((NewPartitions("t", 4),), timeout_ms=5000))
        wanted = (WantedReplicas("t", 0, (2,)),)
        moved = await commands.alter_reassignments(AlterPartitionReassignmentsRequest(wanted, timeout_ms=5000))
        created = await cluster.controller.topics.create_topics(
            CreateTopicsRequest((NewTopic("wide", 20, 3),), timeout_ms=5000, validate_only=True)
        )
        for answer in (*extended.topics, *moved.partitions, *created.topics):
            assert answer.error_code == PolicyViolationError.code
            assert "choose fewer partitions or replicas" in (answer.error_message or "")
        assert await cluster.brokers[1].zk_client.read_topic("t") == before

    run(story)


def test_reassignment_can_be_cancelled_beyond_the_limit_of_the_znode(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t", assignment={0: (1,)})
        commands = cluster.controller.partitions
        wanted = (WantedReplicas("t", 0, (2,)),)
        await commands.alter_reassignments(AlterPartitionReassignmentsRequest(wanted, timeout_ms=5000))
        monkeypatch.setattr(topic_validation, "MAX_ASSIGNMENT_BYTES", 1)
        cancelled = (WantedReplicas("t", 0, None),)
        answer = await commands.alter_reassignments(AlterPartitionReassignmentsRequest(cancelled, timeout_ms=5000))
        assert [each.error_code for each in answer.partitions] == [0]

    run(story)


def test_largest_topic_with_usual_broker_ids_fits_into_a_znode() -> None:
    partitions = dict.fromkeys(range(topic_validation.MAX_PARTITIONS), (100_001, 100_002, 100_003))
    topic_validation.fit_for_znode(TopicAssignment("t", "topic-id", partitions))


def test_reordered_replicas_count_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("full", assignment=dict.fromkeys(range(MOST), (1, 2)))
        wanted = (WantedReplicas("full", 0, (2, 1)),)
        answer = await cluster.controller.partitions.alter_reassignments(
            AlterPartitionReassignmentsRequest(wanted, timeout_ms=5000)
        )
        assert [each.error_code for each in answer.partitions] == [0]

    run_with_limit(story)


def test_internal_topic_is_created_beyond_the_limit() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("full", num_partitions=MOST, replication_factor=3)
        configs = InternalTopicRules.of(cluster.brokers[1].settings).creation_configs()
        await cluster.create(OFFSETS_TOPIC, num_partitions=4, replication_factor=3, configs=configs)
        assert TopicPartition(OFFSETS_TOPIC, 3) in cluster.brokers[1].hosted

    run_with_limit(story)


@pytest.mark.parametrize(
    ("memory_bytes", "partitions"), [(256 << 20, 1_024), (64 << 20, 1_000), (4 << 30, 16_384), (256 << 30, 100_000)]
)
def test_default_limit_follows_the_memory(memory_bytes: int, partitions: int) -> None:
    assert partitions_for(memory_bytes) == partitions


def test_memory_of_the_machine_is_known() -> None:
    assert memory_of_machine() > 64 << 20

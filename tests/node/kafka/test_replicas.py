"""Elections, reassignments, log directories and the pages of DescribeTopicPartitions, as Kafka clients see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.node.client_requests import TP
from tests.node.controller_cluster import Cluster, run
from tests.node.kafka.admin_client import KafkaClient, client_of
from tests.node.memory_cluster import MemoryCluster
from tests.node.test_log_directories import Disks
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    ElectionNotNeededError,
    InvalidRequestError,
    LogDirNotFoundError,
    NoReassignmentInProgressError,
    NotControllerError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from tidelog.protocol.kafka.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tidelog.protocol.kafka.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)

# --- elections --------------------------------------------------------------------------------------


def election(version: int, *topics: tuple[str, tuple[int, ...]], kind: int = 0) -> ElectLeadersRequest:
    named = tuple(TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics)
    return ElectLeadersRequest(election_type=kind, topic_partitions=named or None, timeout_ms=5000)


def results_of(answer: Any) -> dict[str, dict[int, int]]:
    return {
        each.topic: {part.partition_id: part.error_code for part in each.partition_result}
        for each in answer.replica_election_results
    }


@pytest.mark.parametrize("version", range(3))
def test_each_partition_gets_the_result_of_its_election(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t", assignment={0: (1, 2), 1: (2, 3)})
        client, needless = client_of(cluster.brokers[1]), ElectionNotNeededError.code
        answer = await client.ask(election(version, ("t", (0, 1, 9)), ("u", (0,))), version)
        unknown = UnknownTopicOrPartitionError.code
        assert results_of(answer) == {"t": {0: needless, 1: needless, 9: unknown}, "u": {0: unknown}}
        assert all(part.error_message for part in answer.replica_election_results[0].partition_result)
        everything = await client.ask(election(version), version)
        assert (everything.error_code, results_of(everything)) == (0, {}), "no partition needs an election"

    run(story)


@pytest.mark.parametrize("version", range(3))
def test_refused_election_tells_its_error_where_the_version_can(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t", assignment={0: (1, 2)})
        client, code = client_of(cluster.brokers[2]), NotControllerError.code
        answer = await client.ask(election(version, ("t", (0,))), version)
        assert (answer.error_code, results_of(answer)) == (code if version else 0, {"t": {0: code}})
        everything = await client.ask(election(version), version)
        assert (everything.error_code, results_of(everything)) == (code if version else 0, {})
        if version:
            unknown = await client_of(cluster.brokers[1]).ask(election(version, ("t", (0,)), kind=5), version)
            assert unknown.error_code == InvalidRequestError.code

    run(story)


# --- reassignments ----------------------------------------------------------------------------------


def test_reassignment_is_started_listed_and_cancelled() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t", assignment={0: (1, 2), 1: (2, 1)})
        client = client_of(cluster.brokers[1])

        async def move(*replicas: tuple[int, ...] | None) -> list[int]:
            parts = tuple(ReassignablePartition(partition_index=n, replicas=ids) for n, ids in enumerate(replicas))
            topics = (ReassignableTopic(name="t", partitions=parts),)
            answer = await client.ask(AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=5000), 0)
            assert (answer.error_code, answer.error_message) == (0, None)
            (found,) = answer.responses
            assert found.name == "t"
            return [each.error_code for each in found.partitions]

        async def moving(*numbers: int) -> list[tuple[int, Any]]:
            named = (ListPartitionReassignmentsTopics(name="t", partition_indexes=numbers),) if numbers else None
            answer = await client.ask(ListPartitionReassignmentsRequest(topics=named, timeout_ms=5000), 0)
            assert answer.error_code == 0
            return [
                (each.partition_index, (each.adding_replicas, each.removing_replicas))
                for topic in answer.topics
                for each in topic.partitions
            ]

        assert await move((3, 2), None, (1,)) == [
            0,
            NoReassignmentInProgressError.code,
            UnknownTopicOrPartitionError.code,
        ]
        assert await moving() == await moving(0, 1) == [(0, ((3,), (1,)))]
        assert await moving(1) == []
        assert (await move(None))[0] == 0

    run(story)


def test_reassignments_are_refused_by_other_brokers() -> None:
    async def story(cluster: Cluster) -> None:
        client, code = client_of(cluster.brokers[2]), NotControllerError.code
        topics = (ReassignableTopic(name="t", partitions=(ReassignablePartition(partition_index=0),)),)
        altered = await client.ask(AlterPartitionReassignmentsRequest(topics=topics), 0)
        assert altered.error_code == code and altered.error_message
        assert [part.error_code for part in altered.responses[0].partitions] == [code]
        listed = await client.ask(ListPartitionReassignmentsRequest(), 0)
        assert (listed.error_code, listed.topics) == (code, ()) and listed.error_message

    run(story)


# --- log directories --------------------------------------------------------------------------------


@on_virtual_time
async def test_log_directories_list_their_logs_or_their_error() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"x")
        client = KafkaClient(cluster.leader.handlers.handle, cluster.leader.metadata)
        size = len(cluster.leader.log().batches[0])
        for version in range(1, 5):
            answer = await client.ask(DescribeLogDirsRequest(topics=None), version)
            (directory,) = answer.results
            assert (answer.error_code, directory.log_dir, directory.error_code) == (0, "disk", 0)
            (topic,) = directory.topics
            (log,) = topic.partitions
            assert (topic.name, log.partition_index, log.partition_size) == (TP.topic, TP.partition, size)
            assert (log.offset_lag, log.is_future_key) == (0, False)
            other = DescribeLogDirsRequest(topics=(DescribableLogDirTopic(topic="other", partitions=(0,)),))
            assert (await client.ask(other, version)).results[0].topics == ()
        cluster.leader.directory.failure = StorageError("on fire")
        (directory,) = (await client.ask(DescribeLogDirsRequest(topics=None), 4)).results
        assert (directory.error_code, directory.topics) == (StorageError.code, ())


@pytest.mark.parametrize("version", [1, 2])
@on_virtual_time
async def test_replica_moves_to_the_named_directory_or_gets_its_error(version: int, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        leader, manager = cluster.nodes[1], disks.managers[0]
        client = KafkaClient(leader.handlers.handle, leader.metadata)
        source = manager.directory_of(TP)
        assert source is not None
        target = next(path for path in disks.paths(1) if path != source.path)
        moved = AlterReplicaLogDirTopic(name=TP.topic, partitions=(TP.partition,))
        lost = AlterReplicaLogDirTopic(name="t", partitions=(5, 6))
        wanted = {str(target): moved, str(tmp_path / "nowhere"): lost}
        dirs = tuple(AlterReplicaLogDir(path=path, topics=(topic,)) for path, topic in wanted.items())
        answer = await client.ask(AlterReplicaLogDirsRequest(dirs=dirs), version)
        codes = {
            (topic.topic_name, each.partition_index): each.error_code
            for topic in answer.results
            for each in topic.partitions
        }
        unknown = LogDirNotFoundError.code
        assert codes == {TP: 0, ("t", 5): unknown, ("t", 6): unknown}
        await until(lambda: manager.directory_of(TP) is not source)


# --- DescribeTopicPartitions ------------------------------------------------------------------------


def test_topics_are_described_page_by_page() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("a", num_partitions=2)
        await cluster.create("b", num_partitions=3)
        await cluster.create("c", num_partitions=1)
        client = client_of(cluster.brokers[3])
        seen: list[tuple[str, list[int]]] = []
        cursor: Cursor | None = None
        while True:
            request = DescribeTopicPartitionsRequest(topics=(), response_partition_limit=2, cursor=cursor)
            answer = await client.ask(request, 0)
            seen += [(each.name, [part.partition_index for part in each.partitions]) for each in answer.topics]
            for part in (part for each in answer.topics for part in each.partitions):
                assert part.leader_id in part.isr_nodes and len(part.replica_nodes) == 3
                # The Java AdminClient fails with a NullPointerException if a list is null.
                assert part.eligible_leader_replicas == part.last_known_elr == ()
            cursor = answer.next_cursor
            if cursor is None:
                break
        assert seen == [("a", [0, 1]), ("b", [0, 1]), ("b", [2]), ("c", [0])]

    run(story)


def test_named_topics_are_described_in_the_order_of_their_names() -> None:
    async def story(cluster: Cluster) -> None:
        for name in ("a", "b"):
            await cluster.create(name, num_partitions=1)
        client = client_of(cluster.brokers[1])
        named = tuple(TopicRequest(name=name) for name in ("gone", "b", "a"))
        answer = await client.ask(DescribeTopicPartitionsRequest(topics=named), 0)
        assert [(each.name, each.error_code) for each in answer.topics] == [
            ("a", 0),
            ("b", 0),
            ("gone", UnknownTopicOrPartitionError.code),
        ]
        later = Cursor(topic_name="b", partition_index=0)
        answer = await client.ask(DescribeTopicPartitionsRequest(topics=named, cursor=later), 0)
        assert [each.name for each in answer.topics] == ["b", "gone"]
        wrong = Cursor(topic_name="b", partition_index=-1)
        answer = await client.ask(DescribeTopicPartitionsRequest(topics=named, cursor=wrong), 0)
        assert {each.error_code for each in answer.topics} == {InvalidRequestError.code}

    run(story)

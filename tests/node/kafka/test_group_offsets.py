"""OffsetCommit, OffsetFetch and OffsetDelete of Kafka clients, in every version, over the real coordinator."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from node.handlers.groups import OffsetHandlers
from node.kafka.calls import NativeOutcome
from node.net.server import RequestContext
from tests.node.client_requests import TP
from tests.node.group_cluster import GROUP, TP1, GroupCluster
from tests.node.kafka.kafka_member import KafkaMember
from tests.node.kafka.kafka_requests import ask, ask_handler
from tests.node.memory_node import Node
from tests.node.test_zookeeper_offsets import Stage, staged
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidGroupIdError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
)
from tidelog.groups.assignment.consumer_protocol import Subscription, encode_subscription
from tidelog.groups.offsets_topic import Commit
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import OffsetCommitPartition
from tidelog.protocol.group_messages import OffsetCommitRequest as NativeCommit
from tidelog.protocol.kafka.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

COMMIT, FETCH = range(1, 9), range(1, 9)
UNKNOWN = UnknownTopicOrPartitionError.code


def commit_request(*offsets: tuple[TopicPartition, int], version: int, **more: Any) -> OffsetCommitRequest:
    def part(tp: TopicPartition, offset: int) -> OffsetCommitRequestPartition:
        epoch = {"committed_leader_epoch": 3} if version >= 6 else {}
        return OffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=offset, committed_metadata="note", **epoch
        )

    topics = tuple(
        OffsetCommitRequestTopic(name=name, partitions=tuple(part(tp, at) for tp, at in offsets if tp.topic == name))
        for name in dict.fromkeys(tp.topic for tp, _ in offsets)
    )
    return OffsetCommitRequest(group_id=GROUP, topics=topics, **more)


async def commit(node: Node, *offsets: tuple[TopicPartition, int], version: int = 8, **more: Any) -> list[int]:
    """Commit offsets, and return the error codes."""
    response = await ask(node, commit_request(*offsets, version=version, **more), version)
    found = [(topic.name, part.partition_index) for topic in response.topics for part in topic.partitions]
    assert found == [tuple(tp) for tp, _ in offsets]
    return [part.error_code for topic in response.topics for part in topic.partitions]


def fetch_request(version: int, topics: dict[str, tuple[int, ...]] | None, *groups: str) -> OffsetFetchRequest:
    if version < 8:
        plain = OffsetFetchRequestTopic
        named = None if topics is None else tuple(plain(name=n, partition_indexes=p) for n, p in topics.items())
        return OffsetFetchRequest(group_id=groups[0], topics=named)
    nested = OffsetFetchRequestTopics
    listed = None if topics is None else tuple(nested(name=n, partition_indexes=p) for n, p in topics.items())
    return OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=each, topics=listed) for each in groups))


Found = list[tuple[str, int, int, int, str | None, int]]


async def fetch(node: Node, version: int, topics: dict[str, tuple[int, ...]] | None) -> tuple[int, Found]:
    """Return the error code of the request or of its group, and the partitions with all that is said of them."""
    response = await ask(node, fetch_request(version, topics, GROUP), version)
    answer = response.groups[0] if version >= 8 else response
    return answer.error_code, [
        (
            topic.name,
            part.partition_index,
            part.committed_offset,
            part.committed_leader_epoch,
            part.metadata,
            part.error_code,
        )
        for topic in answer.topics
        for part in topic.partitions
    ]


# --- in the coordinator's log ------------------------------------------------------------------------


@pytest.mark.parametrize("version", COMMIT)
def test_commit_of_a_kafka_client_is_read_in_every_version(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            assert await commit(cluster.coordinator, (TP, 7), (TP1, 8), version=version) == [0, 0]
            assert await cluster.committed() == (0, 7), "for our own clients"
            for reader in FETCH:
                epoch = 3 if version >= 6 and reader >= 5 else -1
                expected = [("t", 0, 7, epoch, "note", 0), ("t", 1, 8, epoch, "note", 0)]
                assert await fetch(cluster.coordinator, reader, {"t": (0, 1)}) == (0, expected)

    scenario()


@pytest.mark.parametrize("version", FETCH)
def test_commit_of_our_own_client_is_read_by_kafka_clients(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            ours = NativeCommit(GROUP, (OffsetCommitPartition("t", 0, 9, 4, "ours"),))
            assert (await cluster.coordinator.ask(ours)).partitions[0].error_code == 0
            epoch = 4 if version >= 5 else -1
            mine, none = ("t", 0, 9, epoch, "ours", 0), ("t", 1, -1, -1, "", 0)
            assert await fetch(cluster.coordinator, version, {"t": (0, 1)}) == (0, [mine, none])
            assert await fetch(cluster.coordinator, version, {}) == (0, [])
            if version >= 2:
                assert await fetch(cluster.coordinator, version, None) == (0, [mine])

    scenario()


@pytest.mark.parametrize("version", FETCH)
def test_fetch_at_another_broker_is_refused_where_the_version_says_so(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            code = NotCoordinatorError.code
            in_partition = [("t", 0, -1, -1, "", code)]
            expected = (0, in_partition) if version == 1 else (code, [])
            assert await fetch(cluster.nodes[2], version, {"t": (0,)}) == expected
            cluster.coordinator.cut_off = True
            assert await cluster.committed() == (CoordinatorNotAvailableError.code, -1), "for our own clients"
            assert await fetch(cluster.coordinator, version, {"t": (0,)}) == expected

    scenario()


@on_virtual_time
async def test_several_groups_are_fetched_with_one_request() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        assert await cluster.commit(6, group="another") == 0
        wanted = fetch_request(8, {"t": (0,)}, GROUP, "", "another")
        response = await ask(cluster.coordinator, wanted, 8)
        found = [
            (
                each.group_id,
                each.error_code,
                [part.committed_offset for topic in each.topics for part in topic.partitions],
            )
            for each in response.groups
        ]
        assert found == [(GROUP, 0, [5]), ("", InvalidGroupIdError.code, []), ("another", 0, [6])]


@pytest.mark.parametrize("version", COMMIT)
def test_commit_is_refused_for_each_partition_alone(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster(offset_metadata_max_bytes=4) as cluster:
            await cluster.coordinate(1)
            unknown = TopicPartition("unheard", 0)
            assert await commit(cluster.coordinator, (TP, 7), (unknown, 8), version=version) == [0, UNKNOWN]
            large = commit_request((TP, 9), version=version)
            large.topics[0].partitions[0].committed_metadata = "notes"  # type: ignore[misc]
            response = await ask(cluster.coordinator, large, version)
            assert response.topics[0].partitions[0].error_code == OffsetMetadataTooLargeError.code
            large.topics[0].partitions[0].committed_metadata = None  # type: ignore[misc]
            response = await ask(cluster.coordinator, large, version)
            assert response.topics[0].partitions[0].error_code == 0
            assert await fetch(cluster.coordinator, 8, {"t": (0,)}) == (
                0,
                [("t", 0, 9, 3 if version >= 6 else -1, "", 0)],
            )

    scenario()


@pytest.mark.parametrize("version", COMMIT)
def test_member_commits_in_its_own_generation_only(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            member = KafkaMember(cluster)
            await member.settle()
            mine = {"member_id": member.member_id}
            now = member.generation
            node = cluster.coordinator
            assert await commit(node, (TP, 1), version=version, generation_id_or_member_epoch=now, **mine) == [0]
            assert (
                await commit(node, (TP, 1), (TP1, 1), version=version, generation_id_or_member_epoch=now + 1, **mine)
                == [IllegalGenerationError.code] * 2
            )

    scenario()


@pytest.mark.parametrize("version", [1, 2, 4, 5])
def test_commit_of_versions_2_to_4_expires_when_its_client_says(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster(offsets_retention_check_interval_ms=2000) as cluster:
            await cluster.coordinate(1)
            node = cluster.coordinator
            assert await commit(node, (TP, 1), version=version, retention_time_ms=60_000) == [0]
            assert await commit(node, (TP1, 1), version=version) == [0]
            await asyncio.sleep(56)
            assert await cluster.committed() == (0, 1)
            await cluster.coordinate(2)
            await asyncio.sleep(7)
            assert await cluster.committed() == (0, -1 if 2 <= version <= 4 else 1)
            assert await cluster.committed(tp=TP1) == (0, 1)

    scenario()


@on_virtual_time
async def test_commit_of_version_1_has_the_time_that_its_client_says() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        request = commit_request((TP, 1), (TP1, 2), version=1)
        request.topics[0].partitions[1].commit_timestamp = 1234  # type: ignore[misc]
        await ask(cluster.coordinator, request, 1)
        now_ms = VirtualClock().now_ms()
        for broker_id in (1, 2):
            await cluster.coordinate(broker_id)
            _, hosted = cluster.coordinator.groups.coordinator.find(GROUP)
            assert hosted is not None
            times = [cast(Commit, hosted.offsets.get(tp)).committed_ms for tp in (TP, TP1)]
            assert now_ms - 1000 < times[0] <= now_ms
            assert times[1] == 1234


# --- refused as a whole ------------------------------------------------------------------------------


def refuse(request: Any, context: RequestContext) -> NativeOutcome:
    raise CoordinatorNotAvailableError


@pytest.mark.parametrize("version", range(9))
async def test_refused_fetch_states_its_error_where_the_version_has_it(version: int) -> None:
    response = await ask_handler(refuse, fetch_request(version, {"t": (0, 1)}, GROUP), version)
    code = NotCoordinatorError.code if version else CoordinatorNotAvailableError.code
    of_partitions = [part.error_code for topic in response.topics for part in topic.partitions]
    of_groups = [(each.error_code, each.topics) for each in response.groups]
    if version < 2:
        assert (of_partitions, response.error_code, of_groups) == ([code, code], 0, [])
    elif version < 8:
        assert (of_partitions, response.error_code, of_groups) == ([], code, [])
    else:
        assert (of_partitions, response.error_code, of_groups) == ([], 0, [(code, ())])


async def test_fetch_of_no_groups_is_refused_with_no_groups() -> None:
    response = await ask_handler(refuse, OffsetFetchRequest(groups=()), 8)
    assert (response.groups, response.topics) == ((), ())


@pytest.mark.parametrize("version", range(9))
async def test_refused_commit_has_its_error_in_each_partition(version: int) -> None:
    response = await ask_handler(refuse, commit_request((TP, 1), (TP1, 2), version=version), version)
    codes = [part.error_code for topic in response.topics for part in topic.partitions]
    assert codes == [CoordinatorNotAvailableError.code] * 2


# --- in ZooKeeper ------------------------------------------------------------------------------------


async def ask_zookeeper(stage: Stage, request: Any) -> Any:
    handlers = OffsetHandlers(cast(Any, None), stage.offsets)
    table: dict[str, Any] = {"OFFSET_COMMIT": handlers.commit, "OFFSET_FETCH": handlers.fetch}
    return await ask_handler(lambda wanted, context: table[wanted.api.name](wanted, context), request, 0)


@on_virtual_time
async def test_offsets_of_version_0_are_those_in_zookeeper() -> None:
    stage = await staged()
    unknown = TopicPartition("unheard", 0)
    response = await ask_zookeeper(stage, commit_request((TP, 7), (unknown, 8), version=0))
    codes = [(topic.name, part.error_code) for topic in response.topics for part in topic.partitions]
    assert codes == [("t", 0), ("unheard", UNKNOWN)]
    assert await stage.fetch(("t", 0), group_id=GROUP) == [("t", 0, 0, 7)], "for our own clients"
    response = await ask_zookeeper(stage, fetch_request(0, {"t": (0, 1), "unheard": (0,)}, GROUP))
    found = [
        (topic.name, part.partition_index, part.committed_offset, part.metadata, part.error_code)
        for topic in response.topics
        for part in topic.partitions
    ]
    assert found == [("t", 0, 7, "", 0), ("t", 1, -1, "", 0), ("unheard", 0, -1, "", UNKNOWN)]


@on_virtual_time
async def test_too_large_a_request_to_zookeeper_is_refused_in_each_partition() -> None:
    stage = await staged()
    many = tuple(range(10_001))
    response = await ask_zookeeper(stage, fetch_request(0, {"t": many}, GROUP))
    assert [part.error_code for part in response.topics[0].partitions] == [42] * len(many)
    response = await ask_zookeeper(
        stage, commit_request(*((TopicPartition("t", number), 1) for number in many), version=0)
    )
    assert [part.error_code for part in response.topics[0].partitions] == [42] * len(many)


# --- OffsetDelete ------------------------------------------------------------------------------------


@on_virtual_time
async def test_offsets_of_topics_without_subscribers_are_deleted() -> None:
    async with GroupCluster() as cluster:
        other = TopicPartition("other", 0)
        await cluster.elect(1, tp=other)
        await cluster.inform(other)
        await cluster.coordinate(1)
        assert await cluster.commit(1, tp=other) == 0
        member = KafkaMember(cluster, metadata=encode_subscription(Subscription(("t",))))
        await member.settle()
        part = OffsetDeleteRequestPartition
        topics = tuple(
            OffsetDeleteRequestTopic(name=name, partitions=tuple(part(partition_index=each) for each in partitions))
            for name, partitions in {"t": (0, 1), "other": (0,), "unheard": (0,)}.items()
        )
        response = await ask(cluster.coordinator, OffsetDeleteRequest(group_id=GROUP, topics=topics), 0)
        subscribed = GroupSubscribedToTopicError.code
        assert response.error_code == 0
        assert [
            (topic.name, each.partition_index, each.error_code)
            for topic in response.topics
            for each in topic.partitions
        ] == [("t", 0, subscribed), ("t", 1, subscribed), ("other", 0, 0), ("unheard", 0, UNKNOWN)]
        assert await cluster.committed(tp=other) == (0, -1)
        response = await ask(cluster.coordinator, OffsetDeleteRequest(group_id="unheard", topics=topics), 0)
        assert (response.error_code, response.topics) == (GroupIdNotFoundError.code, ())

"""The answers of a broker to commits and fetches of version 0, over the in-memory ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryStore, MemoryZooKeeper
from node.handlers.zookeeper_offsets import MAX_PARTITIONS, ZooKeeperOffsetHandlers
from node.metadata.metadata_cache import MetadataCache
from node.net.server import RequestContext
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.errors import (
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    InvalidRequestError,
    OffsetMetadataTooLargeError,
    RequestTimedOutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from tidelog.protocol.control_messages import PartitionStateMessage, UpdateMetadataRequest
from tidelog.protocol.group_messages import OffsetCommitPartition, OffsetCommitRequest, OffsetFetchRequest
from tidelog.protocol.messages import DescribePartition

OF_A_CLIENT = RequestContext(b"client", "test", -1, -1, False)
UNKNOWN = UnknownTopicOrPartitionError.code


class Stage:
    """A broker that knows t-0 and t-1, and another client of the same ZooKeeper."""

    def __init__(self) -> None:
        server = MemoryZooKeeper(VirtualClock())
        self.store: MemoryStore = server.connect()
        self.other = server.connect()
        self.zk_client = ZkClient(self.store, VirtualClock())
        self.metadata = MetadataCache("c")
        self.offsets = ZooKeeperOffsetHandlers(self.zk_client.zookeeper_offsets, self.metadata, VirtualClock(), 10)
        self.inform("t", 0, 1)

    def inform(self, topic: str, *partitions: int) -> None:
        states = tuple(PartitionStateMessage(topic, number, 1, 1, 0, (1,), 0, (1,)) for number in partitions)
        every_topic = {state.topic: "" for state in (*self.metadata.partitions, *states)}
        self.metadata.update(UpdateMetadataRequest(1, 1, (), states, (), (), every_topic))

    async def commit(self, *parts: OffsetCommitPartition, group_id: str = "g", deadline_ms: int = -1) -> list[int]:
        request = OffsetCommitRequest(group_id, parts, in_zookeeper=True)
        answer = await self.offsets.commit(request, replace(OF_A_CLIENT, deadline_ms=deadline_ms))
        assert [(part.topic, part.partition) for part in answer.partitions] == [(p.topic, p.partition) for p in parts]
        return [part.error_code for part in answer.partitions]

    async def fetch(self, *tps: tuple[str, int], group_id: str = "g") -> list[tuple[str, int, int, int]]:
        partitions = tuple(DescribePartition(*tp) for tp in tps) or None
        answer = await self.offsets.fetch(OffsetFetchRequest(group_id, partitions, True), OF_A_CLIENT)
        assert not answer.error_code
        return [(part.topic, part.partition, part.error_code, part.committed_offset) for part in answer.partitions]


def at(offset: int, partition: int = 0, topic: str = "t", metadata: str = "") -> OffsetCommitPartition:
    return OffsetCommitPartition(topic, partition, offset, committed_metadata=metadata)


async def staged() -> Stage:
    stage = Stage()
    await stage.zk_client.ensure_paths()
    return stage


@on_virtual_time
async def test_offsets_are_in_zookeeper_and_are_fetched_without_metadata() -> None:
    stage = await staged()
    assert await stage.commit(at(7, metadata="note"), at(8, 1)) == [0, 0]
    assert (await stage.other.get("/consumers/g/offsets/t/1")).data == b"8"
    assert await stage.fetch(("t", 0), ("t", 1), ("t", 0)) == [("t", 0, 0, 7), ("t", 1, 0, 8), ("t", 0, 0, 7)]
    answer = await stage.offsets.fetch(OffsetFetchRequest("g", None, True), OF_A_CLIENT)
    assert [(part.committed_leader_epoch, part.metadata) for part in answer.partitions] == [(-1, "")] * 2


@on_virtual_time
async def test_partition_without_a_commit_has_no_offset_and_no_error() -> None:
    stage = await staged()
    assert await stage.fetch(("t", 0)) == [("t", 0, 0, -1)]
    assert await stage.fetch() == []
    assert (await stage.offsets.list_groups(OF_A_CLIENT)).groups == ()


@on_virtual_time
async def test_unknown_partitions_are_refused_and_the_others_committed() -> None:
    stage = await staged()
    assert await stage.commit(at(1), at(1, 9), at(1, 0, "u"), at(1, 0, "../../brokers")) == [
        0,
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
    ]
    assert await stage.fetch(("t", 0), ("t", 9), ("..", 0)) == [
        ("t", 0, 0, 1),
        ("t", 9, UNKNOWN, -1),
        ("..", 0, UNKNOWN, -1),
    ]


@on_virtual_time
async def test_fetch_of_all_returns_deleted_topics_with_offset_and_error() -> None:
    stage = await staged()
    stage.inform("gone", 3)
    await stage.commit(at(5), at(6, 3, "gone"))
    stage.metadata.update(UpdateMetadataRequest(1, 1, (), (), (), ("gone",)))
    assert await stage.fetch() == [("gone", 3, UNKNOWN, 6), ("t", 0, 0, 5)]


@on_virtual_time
async def test_invalid_commit_is_refused_for_its_partition_only() -> None:
    stage = await staged()
    too_large = OffsetMetadataTooLargeError.code
    assert await stage.commit(at(1, metadata="x" * 10), at(1, 1, metadata="x" * 11)) == [0, too_large]
    assert await stage.commit(at(1, metadata="ü" * 5), at(1, 1, metadata="ü" * 6)) == [0, too_large], "bytes count"
    assert await stage.commit(at(-1)) == [InvalidRequestError.code]
    assert await stage.fetch() == [("t", 0, 0, 1)]


@on_virtual_time
async def test_later_of_two_commits_of_one_partition_counts() -> None:
    stage = await staged()
    assert await stage.commit(at(9), at(4)) == [0, 0]
    assert await stage.fetch() == [("t", 0, 0, 4)]


@on_virtual_time
async def test_broker_without_metadata_does_not_answer_no_offset() -> None:
    stage = await staged()
    await stage.commit(at(1))
    stage.metadata.informed = False
    code = CoordinatorNotAvailableError.code
    assert await stage.fetch(("t", 0), ("u", 0)) == [("t", 0, code, -1), ("u", 0, code, -1)]
    assert await stage.commit(at(2)) == [code]
    assert await stage.fetch() == [("t", 0, 0, 1)]


@pytest.mark.parametrize("group_id", ["", "..", "a/../../brokers", "g\0"])
@on_virtual_time
async def test_group_id_that_escapes_its_path_is_refused(group_id: str) -> None:
    stage = await staged()
    assert await stage.commit(at(1), group_id=group_id) == [InvalidGroupIdError.code]
    assert await stage.fetch(("t", 0), group_id=group_id) == [("t", 0, InvalidGroupIdError.code, -1)]
    everything = await stage.offsets.fetch(OffsetFetchRequest(group_id, None, True), OF_A_CLIENT)
    assert everything.error_code == InvalidGroupIdError.code


@on_virtual_time
async def test_malformed_znode_is_refused_for_its_partition(caplog: pytest.LogCaptureFixture) -> None:
    stage = await staged()
    await stage.commit(at(1), at(2, 1))
    await stage.other.set("/consumers/g/offsets/t/0", b"one")
    with caplog.at_level(logging.WARNING):
        assert await stage.fetch() == [("t", 0, UnknownServerError.code, -1), ("t", 1, 0, 2)]
    assert "b'one'" in caplog.text


@on_virtual_time
async def test_outage_of_zookeeper_is_answered_retriable_before_the_deadline() -> None:
    stage = await staged()
    await stage.commit(at(1))
    stage.store.network.refuse()
    clock, begun_ms = VirtualClock(), VirtualClock().monotonic_ms()
    assert RequestTimedOutError.retriable
    context = replace(OF_A_CLIENT, deadline_ms=begun_ms + 1000)
    answers = await asyncio.gather(
        stage.commit(at(1), at(2, 1), deadline_ms=begun_ms + 1000),
        stage.offsets.fetch(OffsetFetchRequest("g", None, True), context),
        stage.offsets.fetch(OffsetFetchRequest("g", (DescribePartition("t", 0),), True), context),
        stage.offsets.list_groups(context),
    )
    assert clock.monotonic_ms() - begun_ms < 1000
    code = RequestTimedOutError.code
    assert answers[0] == [code, code]
    assert (answers[1].error_code, answers[2].partitions[0].error_code, answers[3].error_code) == (code, code, code)
    # A client without a deadline gets an answer too.
    assert await stage.commit(at(1)) == [code]
    assert clock.monotonic_ms() - begun_ms < 20_000
    stage.store.network.heal()
    assert await stage.commit(at(3)) == [0]


@on_virtual_time
async def test_groups_that_have_offsets_there_are_listed() -> None:
    stage = await staged()
    for group_id in ("b", "a"):
        await stage.commit(at(1), group_id=group_id)
    assert [group.group_id for group in (await stage.offsets.list_groups(OF_A_CLIENT)).groups] == ["a", "b"]


@on_virtual_time
async def test_request_with_too_many_partitions_is_refused() -> None:
    stage = await staged()
    with pytest.raises(InvalidRequestError, match="must be at most"):
        await stage.commit(*[at(1)] * (MAX_PARTITIONS + 1))
    with pytest.raises(InvalidRequestError, match="must be at most"):
        await stage.fetch(*[("t", 0)] * (MAX_PARTITIONS + 1))

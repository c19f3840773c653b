"""The answers of a broker to ListOffsets of version 0, which depend on the last write of each segment."""

from __future__ import annotations

import pytest

from tests.node.client_requests import TP, batch_of, produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_node import Node
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    FencedLeaderEpochError,
    InvalidRequestError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    StorageError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.protocol.list_offsets_v0_messages import ListSegmentOffsetsRequest, SegmentOffsetsPartition

LATER = 1 << 60


async def before(
    node: Node, timestamp: int, *, most: int = 9, replica_id: int = -1, epoch: int = -1
) -> tuple[int, tuple[int, ...]]:
    """Return (error code, offsets)."""
    asked = SegmentOffsetsPartition(TP.topic, TP.partition, timestamp, most, epoch)
    request = ListSegmentOffsetsRequest((asked,), replica_id)
    (answer,) = (await node.ask(request, sender_epoch=1 if replica_id >= 0 else -1)).partitions
    return answer.error_code, answer.offsets


@on_virtual_time
async def test_consumers_get_the_high_watermark_instead_of_higher_offsets() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader = cluster.leader
        assert await before(leader, LATEST_TIMESTAMP) == (0, (0,))
        await leader.ask(produce_request(batch=batch_of(b"a", b"b")))
        cluster.cut(1, 2, 3)
        await leader.ask(produce_request(batch=batch_of(b"c"), acks=1))
        leader.log().written_ms = 1000
        for latest in (LATEST_TIMESTAMP, LATER):
            assert await before(leader, latest) == (0, (2, 0))
            assert await before(leader, latest, most=1) == (0, (2,))
            assert (
                await before(leader, latest, replica_id=2) == (0, (3, 0)) == await before(leader, latest, replica_id=-2)
            )
        assert await before(leader, EARLIEST_TIMESTAMP) == (0, (0,)) == await before(leader, 1000)
        assert await before(leader, 999) == (0, ()), "all segments were written later"
        assert await before(leader, LATER, most=0) == (0, ())


@on_virtual_time
async def test_only_the_leader_of_the_named_epoch_answers_except_for_debugging() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.elect(1)
        leader, follower = cluster.leader, cluster.nodes[2]
        await until(lambda: follower.replica().partition.leader_epoch == 1)
        assert (await before(follower, LATEST_TIMESTAMP))[0] == NotLeaderOrFollowerError.code
        assert await before(follower, LATEST_TIMESTAMP, replica_id=-2) == (0, (1, 0))
        assert (await before(leader, LATEST_TIMESTAMP, epoch=0))[0] == FencedLeaderEpochError.code
        assert (await before(leader, LATEST_TIMESTAMP, epoch=2))[0] == UnknownLeaderEpochError.code
        assert (await before(leader, LATEST_TIMESTAMP, epoch=1))[0] == 0


@on_virtual_time
async def test_new_leader_does_not_answer_with_an_old_high_watermark() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.cut(2, 1, 3)  # so that broker 2 gets no acknowledgement
        await cluster.elect(2)
        leader = cluster.leader
        leader.log().written_ms = 1000
        for timestamp in (LATEST_TIMESTAMP, LATER):
            assert (await before(leader, timestamp))[0] == OffsetNotAvailableError.code
        assert await before(leader, 1000) == (0, (0,)) == await before(leader, EARLIEST_TIMESTAMP)
        assert await before(leader, LATEST_TIMESTAMP, replica_id=3) == (0, (1, 0))
        cluster.heal()
        await until(lambda: leader.replica().partition.high_watermark_is_known)
        assert await before(leader, LATEST_TIMESTAMP) == (0, (1, 0))


@on_virtual_time
async def test_error_of_one_partition_is_answered_for_it_alone() -> None:
    async with MemoryCluster() as cluster:
        for number in (0, 1, 2):
            await cluster.elect(1, tp=TP._replace(partition=number))
        leader = cluster.leader
        leader.replica(TP._replace(partition=1)).offline = True
        asked = [SegmentOffsetsPartition("t", number, LATEST_TIMESTAMP) for number in (0, 0, 2, 3, 1)]
        response = await leader.ask(ListSegmentOffsetsRequest(tuple(asked)))
        assert [(part.error_code, part.offsets) for part in response.partitions] == [
            (InvalidRequestError.code, ()),
            (InvalidRequestError.code, ()),
            (0, (0,)),
            (UnknownTopicOrPartitionError.code, ()),
            (StorageError.code, ()),
        ]


@pytest.mark.parametrize(("timestamp", "most"), [(-3, 1), (-4, 1), (0, -1)])
@on_virtual_time
async def test_invalid_timestamps_and_counts_are_refused(timestamp: int, most: int) -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert await before(cluster.leader, timestamp, most=most) == (InvalidRequestError.code, ())

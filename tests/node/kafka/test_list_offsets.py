"""ListOffsets and OffsetForLeaderEpoch of Kafka clients, in every version, over replicas in memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node.client_requests import TP, batch_of, produce_request
from tests.node.kafka.kafka_requests import ask
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_node import Node
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from tidelog.model import LATEST_TIMESTAMP
from tidelog.protocol.kafka.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

T0 = 1_700_000_000_000


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("replica_id", [-1, 0, 2])
def test_client_with_the_id_of_a_replica_sees_committed_records_only(version: int, replica_id: int) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            await cluster.elect(1)
            await cluster.produce(b"a")
            cluster.cut(1, 2, 3)
            await cluster.leader.ask(produce_request(batch=batch_of(b"b"), acks=1))
            request = ListOffsetsRequest(
                replica_id=replica_id,
                topics=(
                    ListOffsetsTopic(
                        name=TP.topic,
                        partitions=(ListOffsetsPartition(partition_index=TP.partition, timestamp=LATEST_TIMESTAMP),),
                    ),
                ),
            )
            (topic,) = (await ask(cluster.leader, request, version)).topics
            (found,) = topic.partitions
            assert found.error_code == 0
            assert (found.old_style_offsets[0] if version == 0 else found.offset) == 1

    story()


LATEST, EARLIEST, MAX, EARLIEST_LOCAL, LATEST_TIERED, UNDEFINED = range(-1, -7, -1)
#: The first version that has each special time, and what it finds in `timed_log`: offset and timestamp.
SPECIAL = {
    LATEST: (1, 4, -1),
    EARLIEST: (1, 1, -1),
    MAX: (7, 2, T0 + 2000),
    EARLIEST_LOCAL: (8, 1, -1),
    LATEST_TIERED: (9, -1, -1),
    UNDEFINED: (99, -1, -1),
}


async def look_up(node: Node, version: int, timestamp: int, *, topic: str = TP.topic, epoch: int = -1) -> Any:
    partition = ListOffsetsPartition(partition_index=TP.partition, timestamp=timestamp, current_leader_epoch=epoch)
    topics = (ListOffsetsTopic(name=topic, partitions=(partition,)),)
    (found_topic,) = (await ask(node, ListOffsetsRequest(replica_id=-1, topics=topics), version)).topics
    (found,) = found_topic.partitions
    assert (found_topic.name, found.partition_index) == (topic, TP.partition)
    return found


async def timed_log(cluster: MemoryCluster) -> Node:
    """Return the leader in epoch 1 of a log from offset 1 to 4, whose records have one time each."""
    await cluster.elect(1)
    await cluster.elect(1)
    for second in (0, 1, 2, 1):
        await cluster.leader.ask(produce_request(batch=batch_of(b"a", timestamp=T0 + 1000 * second)))
    cluster.leader.replica().log.raise_log_start(1)
    return cluster.leader


@pytest.mark.parametrize("version", range(1, 10))
def test_special_times_are_known_from_their_version_on(version: int) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            leader = await timed_log(cluster)
            for timestamp, (first, offset, time) in SPECIAL.items():
                found = await look_up(leader, version, timestamp)
                if version < first:
                    assert (found.error_code, found.offset) == (UnsupportedVersionError.code, -1), timestamp
                    continue
                assert (found.error_code, found.offset, found.timestamp) == (0, offset, time), timestamp
                has_epoch = version >= 4 and offset >= 0
                assert found.leader_epoch == (1 if has_epoch else -1), timestamp
                unknown = await look_up(leader, version, timestamp, topic="unheard")
                assert unknown.error_code == UnknownTopicOrPartitionError.code, timestamp
                refused = await look_up(cluster.nodes[2], version, timestamp)
                assert refused.error_code == NotLeaderOrFollowerError.code, timestamp

    story()


@pytest.mark.parametrize("version", range(10))
def test_first_record_at_or_after_a_time_is_found_in_every_version(version: int) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            leader = await timed_log(cluster)
            found = await look_up(leader, version, T0 + 1500)
            if version == 0:
                assert found.old_style_offsets == (1,), "the start of the segment that begins before the time"
            else:
                assert (found.error_code, found.offset, found.timestamp) == (0, 2, T0 + 2000)
            for epoch, error in ((0, FencedLeaderEpochError), (1, None), (2, UnknownLeaderEpochError)):
                found = await look_up(leader, version, T0, epoch=epoch)
                assert found.error_code == (error.code if error is not None and version >= 4 else 0)

    story()


@pytest.mark.parametrize("version", range(2, 5))
def test_end_of_an_earlier_leader_epoch_is_told_in_every_version(version: int) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            await cluster.elect(1)
            await cluster.produce(b"a")
            await cluster.elect(1)
            await cluster.produce(b"b")

            async def end_of(leader_epoch: int, *, current: int = 1, at: int = 1) -> tuple[int, int, int]:
                partition = OffsetForLeaderPartition(
                    partition=TP.partition, leader_epoch=leader_epoch, current_leader_epoch=current
                )
                topics = (OffsetForLeaderTopic(topic=TP.topic, partitions=(partition,)),)
                response = await ask(cluster.nodes[at], OffsetForLeaderEpochRequest(topics=topics), version)
                (topic,) = response.topics
                (found,) = topic.partitions
                return found.error_code, found.leader_epoch, found.end_offset

            assert await end_of(0) == (0, 0, 1)
            assert await end_of(1) == (0, 1, 2)
            assert await end_of(7) == (0, -1, -1)
            assert (await end_of(0, current=0))[0] == FencedLeaderEpochError.code
            assert (await end_of(0, current=-1, at=2))[0] == NotLeaderOrFollowerError.code

    story()

"""A broker knows the leader of the latest epoch by its replica or by its metadata cache, whichever was told later."""

from __future__ import annotations

import asyncio

from tests.node.client_requests import TP
from tests.node.memory_cluster import TOPIC_ID, MemoryCluster
from tests.node.memory_node import Node
from tests.node.test_resigning import hold_fence_writes
from tests.virtual_time import on_virtual_time
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.control_messages import PartitionStateMessage, TopicInfo, UpdateMetadataRequest

NOT_HOSTED = TopicPartition("elsewhere", 0)


def tell(node: Node, leader: int, epoch: int, tp: TopicPartition = TP, topic_id: str = TOPIC_ID) -> None:
    """Send the broker an UpdateMetadata request with this leader."""
    state = PartitionStateMessage(*tp, 1, leader, epoch, isr=(1, 2, 3), partition_epoch=epoch, replicas=(1, 2, 3))
    node.metadata.update(UpdateMetadataRequest(1, 1, (), (state,), (TopicInfo(tp.topic, topic_id, {}, 1),)))


@on_virtual_time
async def test_leader_names_itself() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert cluster.nodes[1].replicas.latest_leader(TP) == (1, 0)


@on_virtual_time
async def test_later_epoch_of_replica_or_metadata_counts() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        node = cluster.nodes[3]
        tell(node, 1, 0)
        await cluster.elect(2)
        assert node.replicas.latest_leader(TP) == (2, 1), "the replica was told"
        tell(node, 1, 2)
        assert node.replicas.latest_leader(TP) == (1, 2), "the metadata cache was told"


@on_virtual_time
async def test_metadata_cache_counts_for_a_partition_of_other_brokers() -> None:
    async with MemoryCluster() as cluster:
        node = cluster.nodes[1]
        assert node.replicas.latest_leader(NOT_HOSTED) == (NO_LEADER, -1)
        tell(node, 2, 5, NOT_HOSTED)
        assert node.replicas.latest_leader(NOT_HOSTED) == (2, 5)
        tell(node, 1, 6, NOT_HOSTED)
        assert node.replicas.latest_leader(NOT_HOSTED) == (NO_LEADER, 6), "this broker hosts no replica, so cannot lead"


@on_virtual_time
async def test_broker_that_resigned_names_no_leader() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        node = cluster.nodes[1]
        tell(node, 1, 0)
        node.replicas.registration_lost()
        assert node.replicas.latest_leader(TP) == (NO_LEADER, 0)


@on_virtual_time
async def test_follower_that_stopped_still_names_its_leader() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(2)
        node = cluster.nodes[1]
        node.replicas.stop_serving(node.replica())
        assert node.replicas.latest_leader(TP) == (2, 0)


@on_virtual_time
async def test_replica_of_an_earlier_topic_does_not_count() -> None:
    async with MemoryCluster() as cluster:
        for leader in (1, 2, 3, 2):
            await cluster.elect(leader)
        node = cluster.nodes[1]
        tell(node, 3, 0, topic_id="created again")
        assert node.replicas.latest_leader(TP) == (3, 0)


@on_virtual_time
async def test_each_role_knows_the_next_leader_before_its_slow_disk() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        held = [hold_fence_writes(cluster.nodes[broker_id]) for broker_id in (1, 3)]
        await cluster.elect(2, send_to=())
        before = [cluster.nodes[each].ask(cluster.leader_and_isr(), sender_epoch=1) for each in (1, 3)]
        await cluster.elect(3, send_to=())
        later = [cluster.nodes[1].ask(cluster.leader_and_isr(), sender_epoch=1)]
        requests = [asyncio.ensure_future(each) for each in before + later]
        await asyncio.sleep(0.1)
        assert cluster.nodes[3].replicas.latest_leader(TP) == (2, 1), "a follower"
        assert cluster.nodes[1].replicas.latest_leader(TP) == (3, 2), "a leader that stopped for an earlier request"
        for each in held:
            each.set()
        await asyncio.gather(*requests)


@on_virtual_time
async def test_conflict_of_an_isr_write_names_the_leader_that_was_found() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(2, send_to=())  # ZooKeeper has the next epoch, of which no broker was told
        cluster.cut(1, 2, 3)
        node = cluster.nodes[1]
        resigned = asyncio.Event()
        node.replicas.subscribe(lambda replica: resigned.set())
        await asyncio.wait_for(resigned.wait(), 20)
        assert node.replicas.latest_leader(TP) == (2, 1)

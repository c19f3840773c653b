"""What every broker tells clients of the cluster, by what it has last heard from the controller."""

from __future__ import annotations

from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time
from tidelog.control_messages import TopicInfo, UpdateMetadataRequest
from tidelog.errors import (
    NotControllerError,
    UnknownTopicOrPartitionError,
)
from tidelog.messages import (
    CreateTopicsRequest,
    InitProducerIdRequest,
    MetadataRequest,
    NewTopic,
)


@on_virtual_time
async def test_metadata_names_no_leader_that_is_not_live_and_forgets_deleted_topics() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        node = cluster.nodes[2]
        state = cluster.leader_and_isr().partitions
        topics = (TopicInfo("t", "id", {}),)
        await node.ask(UpdateMetadataRequest(3, 1, cluster.live(), state, topics), sender_epoch=1)
        described = await node.ask(MetadataRequest())
        assert described.controller_id == 3
        assert [broker.broker_id for broker in described.brokers] == [1, 2, 3]
        assert [(p.leader, p.error_code) for p in described.topics[0].partitions] == [(1, 0)]
        alive = tuple(broker for broker in cluster.live() if broker.broker_id != 1)
        await node.ask(UpdateMetadataRequest(3, 1, alive, (), ()), sender_epoch=1)
        partition = (await node.ask(MetadataRequest(("t",)))).topics[0].partitions[0]
        assert (partition.leader, partition.error_code, partition.offline_replicas) == (-1, 5, (1,))
        await node.ask(UpdateMetadataRequest(3, 1, alive, (), (), ("t",)), sender_epoch=1)
        gone = (await node.ask(MetadataRequest(("t",)))).topics[0]
        assert (gone.error_code, gone.partitions) == (UnknownTopicOrPartitionError.code, ())


@on_virtual_time
async def test_producer_ids_come_from_blocks_and_topics_from_the_controller() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        answers = [await cluster.leader.ask(InitProducerIdRequest()) for _ in range(4)]
        assert [answer.producer_id for answer in answers] == [1000, 1001, 1002, 1000]
        created = await cluster.leader.ask(CreateTopicsRequest((NewTopic("n"),), 1000))
        assert created.topics[0].error_code == NotControllerError.code

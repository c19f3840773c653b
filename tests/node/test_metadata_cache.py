"""Metadata for clients, from the latest requests of the controller."""

from __future__ import annotations

import pytest

from node.metadata.metadata_cache import MetadataCache
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    BrokerNotAvailableError,
    InvalidRequestError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    NotControllerError,
    UnknownTopicOrPartitionError,
)
from tidelog.protocol.control_messages import (
    BrokerInfo,
    ListenerAddress,
    PartitionStateMessage,
    TopicInfo,
    UpdateMetadataRequest,
)
from tidelog.protocol.messages import CreateTopicsRequest, InitProducerIdRequest, MetadataRequest, NewTopic


@on_virtual_time
async def test_metadata_has_only_live_leaders_and_no_deleted_topics() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        node = cluster.nodes[2]
        state = cluster.leader_and_isr().partitions
        topics = (TopicInfo("t", "id", {}, 1),)
        await node.ask(UpdateMetadataRequest(3, 1, cluster.live(), state, topics, (), {"t": "id"}), sender_epoch=1)
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


def test_topics_missing_from_all_names_leave_the_cache() -> None:
    cache = MetadataCache("c")
    states = tuple(PartitionStateMessage(name, 0, 1, 1, 0, (1,), 0, (1,)) for name in ("stays", "went", "goes"))
    cache.update(UpdateMetadataRequest(1, 1, (), states, ()))
    deleted: list[str] = []
    cache.subscribe(on_deleted=deleted.extend)
    cache.update(UpdateMetadataRequest(1, 1, (), (), (), ("goes",), {"stays": "id", "comes": "id-2"}))
    assert {state.topic for state in cache.partitions} == {"stays"}
    assert sorted(deleted) == ["goes", "went"]


def test_started_broker_refuses_to_list_all_topics_until_informed() -> None:
    cache = MetadataCache("c")
    state = PartitionStateMessage("t", 0, 1, 1, 0, (1,), 0, (1,))
    for request in (UpdateMetadataRequest(1, 1, (), (), ()), UpdateMetadataRequest(1, 1, (), (state,), ())):
        cache.update(request)
        with pytest.raises(BrokerNotAvailableError, match="has not received the names of all topics"):
            cache.describe(None)
    assert [topic.name for topic in cache.describe(("t",)).topics] == ["t"]
    cache.update(UpdateMetadataRequest(1, 1, (), (), (), (), {"t": "id"}))
    cache.update(UpdateMetadataRequest(1, 1, (), (), ()))
    assert [topic.name for topic in cache.describe(None).topics] == ["t"]


def test_started_broker_calls_no_topic_unknown_until_informed() -> None:
    cache = MetadataCache("c")
    (asked,) = cache.describe(("t",)).topics
    assert asked.error_code == LeaderNotAvailableError.code
    cache.update(UpdateMetadataRequest(1, 1, (), (), (), (), {}))
    (asked,) = cache.describe(("t",)).topics
    assert asked.error_code == UnknownTopicOrPartitionError.code


def test_topic_with_another_id_counts_as_deleted() -> None:
    cache = MetadataCache("c")
    deleted: list[str] = []
    cache.subscribe(on_deleted=deleted.extend)
    for topic_id in ("old", "old", "new"):
        assert not deleted
        state = PartitionStateMessage("t", 0, 1, 1, 0, (1,), 0, (1,))
        cache.update(UpdateMetadataRequest(1, 1, (), (state,), (TopicInfo("t", topic_id, {}, 1),)))
    assert deleted == ["t"]
    assert cache.exists("t", 0)


def test_partition_without_a_state_is_listed_without_a_leader() -> None:
    cache = MetadataCache("c")
    cache.set_brokers([BrokerInfo(1, 10, (ListenerAddress("KAFKA", "h", 1),))], 0)
    states = tuple(PartitionStateMessage("t", number, 1, 1, 0, (1,), 0, (1,)) for number in (0, 2))
    cache.update(UpdateMetadataRequest(1, 1, (), states, (TopicInfo("t", "id", {}, 4),)))
    (topic,) = cache.describe(("t",)).topics
    seen = [(each.partition, each.error_code, each.leader, each.leader_epoch) for each in topic.partitions]
    unknown = LeaderNotAvailableError.code
    assert seen == [(0, 0, 1, 0), (1, unknown, -1, -1), (2, 0, 1, 0), (3, unknown, -1, -1)]
    assert [cache.exists("t", number) for number in (-1, 0, 1, 3, 4)] == [False, True, True, True, False]
    assert not cache.exists("u", 0)


@pytest.mark.parametrize("count", [-1, 1 << 18, (1 << 63) - 1])
def test_topic_with_too_many_partitions_is_refused(count: int) -> None:
    """Each metadata response lists all partitions, and would take as much memory."""
    cache = MetadataCache("c")
    topics = (TopicInfo("t", "id", {}, 1), TopicInfo("u", "id-2", {}, count))
    with pytest.raises(InvalidRequestError, match=r"partitions: must be "):
        cache.update(UpdateMetadataRequest(1, 1, (), (), topics, (), {"t": "id", "u": "id-2"}))
    assert cache.topic("t") is None and not cache.informed


def test_topics_with_too_many_partitions_together_are_refused() -> None:
    cache = MetadataCache("c")
    large = [TopicInfo(f"t{number}", f"id-{number}", {}, 1 << 17) for number in range(9)]
    cache.update(UpdateMetadataRequest(1, 1, (), (), tuple(large[:5])))
    for more in (large[5:], [TopicInfo("small", "id", {}, 1), *large[5:]]):
        with pytest.raises(InvalidRequestError, match=r"topics have .* partitions"):
            cache.update(UpdateMetadataRequest(1, 1, (), (), tuple(more)))
    cache.update(UpdateMetadataRequest(1, 1, (), (), tuple(large[:8])))
    assert cache.topic("t7") is not None and cache.topic("small") is None
    cache.update(UpdateMetadataRequest(1, 1, (), (), (large[8],), ("t0",)))
    cache.update(UpdateMetadataRequest(1, 1, (), (), (large[0],), (), {"t0": "id-0", "t1": "id-1"}))
    assert cache.topic("t0") is not None and cache.topic("t8") is None


def test_client_gets_the_addresses_of_its_listener() -> None:
    cache = MetadataCache("c")
    inside = ListenerAddress("KAFKA", "broker-1", 9092)
    outside = ListenerAddress("KAFKA_HOST", "127.0.0.1", 9192)
    alone = ListenerAddress("KAFKA", "broker-2", 9092)
    cache.set_brokers([BrokerInfo(1, 10, (inside, outside)), BrokerInfo(2, 20, (alone,))], 0)
    states = tuple(PartitionStateMessage("t", number, 1, number + 1, 0, (1, 2), 0, (1, 2)) for number in range(3))
    cache.update(UpdateMetadataRequest(2, 1, (), states, ()))
    cache.admit_controller(2, 1)
    within, without = cache.describe(("t",), "KAFKA"), cache.describe(("t",), "KAFKA_HOST")
    assert [(broker.host, broker.port) for broker in within.brokers] == [("broker-1", 9092), ("broker-2", 9092)]
    assert [(broker.host, broker.port) for broker in without.brokers] == [("127.0.0.1", 9192)]
    assert (within.controller_id, without.controller_id) == (2, -1)
    # The leaders are a broker with this listener, a broker without it, and a broker that is not live.
    assert [p.error_code for p in within.topics[0].partitions] == [0, 0, LeaderNotAvailableError.code]
    codes = [0, ListenerNotFoundError.code, LeaderNotAvailableError.code]
    assert [p.error_code for p in without.topics[0].partitions] == codes


@on_virtual_time
async def test_producer_ids_come_from_blocks_and_topics_from_controller() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        answers = [await cluster.leader.ask(InitProducerIdRequest()) for _ in range(4)]
        assert [answer.producer_id for answer in answers] == [1000, 1001, 1002, 1000]
        created = await cluster.leader.ask(CreateTopicsRequest((NewTopic("n"),), 1000))
        assert created.topics[0].error_code == NotControllerError.code

"""Produce and Fetch of Kafka clients, in every version, over replicas in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.node.client_requests import TP, batch_of, values_of
from tests.node.kafka.admin_client import KafkaClient
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_node import Node
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    InvalidRecordError,
    InvalidTimestampError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnsupportedCompressionTypeError,
)
from tidelog.protocol.control_messages import TopicInfo, UpdateMetadataRequest
from tidelog.protocol.kafka.messages.records import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.kafka.primitives import ZERO_UUID, uuid_from_text
from tidelog.records import Codec, encode_batch, read_header

PRODUCE, FETCH = range(3, 11), range(4, 18)
TOPIC_ID, OTHER_ID = "A" * 21 + "Q", "B" * 21 + "Q"
NO_LEADER = LeaderIdAndEpoch()
T0 = 1_700_000_000_000


class Stage:
    """A cluster whose first broker leads, and a Kafka client of each broker."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.clients = {
            broker_id: KafkaClient(
                node.handlers.handle,
                node.metadata,
                sessions=node.purgatories.consumer_sessions,
                latest_leader=node.replicas.latest_leader,
            )
            for broker_id, node in cluster.nodes.items()
        }

    async def elect(self, leader: int) -> None:
        """Elect a leader, and tell all brokers."""
        await self.cluster.elect(leader)
        for node in self.cluster.nodes.values():
            self.tell(node, TOPIC_ID)

    def tell(self, node: Node, topic_id: str) -> None:
        """Tell a broker's clients the topic's id, its leader, and where Kafka clients find the brokers."""
        request = self.cluster.leader_and_isr(topic_id=topic_id)
        live = request.live_brokers
        topics = (TopicInfo(TP.topic, topic_id, self.cluster.configs, 1),)
        node.metadata.update(UpdateMetadataRequest(1, 1, live, request.partitions, topics))
        node.metadata.set_brokers(live, 0)

    async def produce(self, version: int, records: bytes, *, to: int = 1, acks: int = -1) -> Any:
        """Return the answer for the partition, and the whole response."""
        data = TopicProduceData(
            name=TP.topic, partition_data=(PartitionProduceData(index=TP.partition, records=records),)
        )
        request = ProduceRequest(acks=acks, timeout_ms=5000, topic_data=(data,))
        response = await self.clients[to].ask(request, version)
        (topic,) = response.responses
        (partition,) = topic.partition_responses
        assert (topic.name, partition.index) == TP
        return partition, response

    async def fetch(
        self, version: int, *, at: int = 1, topic_id: str = TOPIC_ID, epoch: int = -1, offset: int = 0, **more: Any
    ) -> Any:
        """Return the answer for the partition, and the whole response."""
        partition = FetchPartition(
            partition=TP.partition, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
        )
        topic = FetchTopic(topic=TP.topic, topic_id=uuid_from_text(topic_id), partitions=(partition,))
        limits = {"max_wait_ms": 0, "min_bytes": 0} | more
        response = await self.clients[at].ask(FetchRequest(topics=(topic,), **limits), version)
        (topic,) = response.responses
        (partition,) = topic.partitions
        if version >= 13:
            assert (topic.topic, topic.topic_id) == ("", uuid_from_text(topic_id))
        else:
            assert (topic.topic, topic.topic_id) == (TP.topic, ZERO_UUID)
        return partition, response


def on_stage(story: Any) -> Any:
    """Run `story(stage, version)` on virtual time, with broker 1 as the leader."""

    def test(version: int) -> None:
        @on_virtual_time
        async def run() -> None:
            async with MemoryCluster(topic_id=TOPIC_ID) as cluster:
                stage = Stage(cluster)
                await stage.elect(1)
                await story(stage, version)

        run()

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


# --- Produce -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", PRODUCE)
@on_stage
async def test_each_version_of_produce_tells_the_offsets_it_knows(stage: Stage, version: int) -> None:
    await stage.cluster.produce(b"before")
    stored, _ = await stage.produce(version, batch_of(b"a", b"b"))
    assert (stored.error_code, stored.base_offset, stored.log_append_time_ms) == (0, 1, -1)
    assert stored.log_start_offset == (0 if version >= 5 else -1)
    assert (await stage.cluster.consume(1)) == (0, [b"a", b"b"])


@pytest.mark.parametrize("version", PRODUCE)
@on_stage
async def test_refused_records_are_named_from_version_8_on(stage: Stage, version: int) -> None:
    stage.cluster.configs["message.timestamp.after.max.ms"] = "1000"
    await stage.elect(1)
    refused, _ = await stage.produce(version, batch_of(b"late", timestamp=2_000_000_000_000))
    assert (refused.error_code, refused.base_offset) == (InvalidTimestampError.code, -1)
    assert [each.batch_index for each in refused.record_errors] == ([0] if version >= 8 else [])
    assert bool(refused.error_message) == (version >= 8)


@pytest.mark.parametrize("version", PRODUCE)
@on_stage
async def test_produce_names_the_new_leader_from_version_10_on(stage: Stage, version: int) -> None:
    await stage.elect(2)
    refused, response = await stage.produce(version, batch_of(b"a"))
    assert refused.error_code == NotLeaderOrFollowerError.code
    if version >= 10:
        assert refused.current_leader == LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
        assert response.node_endpoints == (NodeEndpoint(node_id=2, host="host-2", port=9092),)
    else:
        assert (refused.current_leader, response.node_endpoints) == (NO_LEADER, ())
    stored, response = await stage.produce(version, batch_of(b"a"), to=2)
    assert (stored.error_code, stored.current_leader, response.node_endpoints) == (0, NO_LEADER, ())


@pytest.mark.parametrize("version", PRODUCE)
@on_stage
async def test_failure_of_acks_0_is_an_error_and_success_has_no_answer(stage: Stage, version: int) -> None:
    with pytest.raises(AssertionError, match="a Produce with acks=0"):  # the helper expects an answer
        await stage.produce(version, batch_of(b"a"), acks=0)
    await stage.cluster.produce(b"b")
    assert await stage.cluster.consume(0) == (0, [b"a", b"b"])
    await stage.elect(2)
    refused, _ = await stage.produce(version, batch_of(b"lost"), acks=0)
    assert refused.error_code == NotLeaderOrFollowerError.code


@pytest.mark.parametrize("version", PRODUCE)
@on_stage
async def test_zstd_is_refused_before_version_7(stage: Stage, version: int) -> None:
    batch = encode_batch([(T0, b"k", b"v", ())], codec=Codec.ZSTD)
    produced, _ = await stage.produce(version, batch)
    if version >= 7:
        assert (produced.error_code, produced.base_offset) == (0, 0)
    else:
        assert (produced.error_code, produced.base_offset) == (UnsupportedCompressionTypeError.code, -1)
        assert stage.cluster.leader.log().values == []
    malformed, _ = await stage.produce(version, batch[:60])
    assert malformed.error_code == InvalidRecordError.code


# --- Fetch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", FETCH)
@on_stage
async def test_topic_in_zstd_is_fetched_from_version_10_on(stage: Stage, version: int) -> None:
    stage.cluster.configs = {**stage.cluster.configs, "compression.type": "zstd"}
    await stage.elect(1)
    await stage.cluster.produce(b"a")
    found, _ = await stage.fetch(version)
    if version >= 10:
        assert (found.error_code, values_of(found.records, 0)) == (0, [b"a"])
    else:
        unsupported = UnsupportedCompressionTypeError.code
        assert (found.error_code, found.high_watermark, found.records) == (unsupported, -1, b"")


@pytest.mark.parametrize("version", FETCH)
@on_stage
async def test_topic_may_become_zstd_while_a_fetch_waits(stage: Stage, version: int) -> None:
    waiting = asyncio.create_task(stage.fetch(version, max_wait_ms=500, min_bytes=1))
    await asyncio.sleep(0)
    stage.cluster.leader.replicas.reconfigure([TopicInfo(TP.topic, TOPIC_ID, {"compression.type": "zstd"}, 1)])
    assert not waiting.done()
    await stage.cluster.produce(b"a")
    found, _ = await waiting
    assert found.error_code == (0 if version >= 10 else UnsupportedCompressionTypeError.code)


@pytest.mark.parametrize("version", FETCH)
@on_stage
async def test_zstd_of_producers_is_fetched_in_every_version(stage: Stage, version: int) -> None:
    await stage.produce(9, encode_batch([(T0, b"k", b"v", ())], codec=Codec.ZSTD))
    found, _ = await stage.fetch(version)
    assert (found.error_code, read_header(found.records).codec, values_of(found.records, 0)) == (0, Codec.ZSTD, [b"v"])


@pytest.mark.parametrize("version", FETCH)
@on_stage
async def test_each_version_of_fetch_returns_the_same_records(stage: Stage, version: int) -> None:
    for value in (b"a", b"b", b"c"):
        await stage.cluster.produce(value)
    stage.cluster.leader.replica().log.raise_log_start(1)
    found, response = await stage.fetch(version, offset=1, session_epoch=0)
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 3)
    assert values_of(found.records, 1) == [b"b", b"c"]
    assert found.log_start_offset == (1 if version >= 5 else -1)
    assert bool(response.session_id) == (version >= 7)
    assert (found.current_leader, response.node_endpoints) == (NO_LEADER, ())


@pytest.mark.parametrize("version", FETCH)
@on_stage
async def test_leader_epoch_of_a_fetch_is_checked_from_version_9_on(stage: Stage, version: int) -> None:
    await stage.elect(1)
    for epoch, error in ((0, FencedLeaderEpochError), (1, None), (2, UnknownLeaderEpochError)):
        found, _ = await stage.fetch(version, epoch=epoch)
        assert found.error_code == (error.code if error is not None and version >= 9 else 0)


@pytest.mark.parametrize("version", FETCH)
@on_stage
async def test_fetch_names_the_new_leader_from_12_and_its_address_from_16_on(stage: Stage, version: int) -> None:
    await stage.elect(2)
    refused, response = await stage.fetch(version)
    assert refused.error_code == NotLeaderOrFollowerError.code
    assert refused.current_leader == (LeaderIdAndEpoch(leader_id=2, leader_epoch=1) if version >= 12 else NO_LEADER)
    address = NodeEndpoint(node_id=2, host="host-2", port=9092)
    assert response.node_endpoints == ((address,) if version >= 16 else ())


@pytest.mark.parametrize("version", [16, 17])
@on_stage
async def test_wait_that_a_new_leader_ends_names_that_leader(stage: Stage, version: int) -> None:
    waiting = asyncio.ensure_future(stage.fetch(version, max_wait_ms=5000, min_bytes=1))
    await asyncio.sleep(0.1)
    await stage.cluster.elect(2)  # by LeaderAndIsr; no UpdateMetadata has come
    refused, response = await asyncio.wait_for(waiting, 1)
    assert refused.error_code == NotLeaderOrFollowerError.code
    assert refused.current_leader == LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
    assert response.node_endpoints == (NodeEndpoint(node_id=2, host="host-2", port=9092),)


@pytest.mark.parametrize("version", [10])
@on_stage
async def test_produce_that_a_new_leader_ends_names_that_leader(stage: Stage, version: int) -> None:
    stage.cluster.cut(1, 2, 3)  # so that the followers acknowledge nothing
    waiting = asyncio.ensure_future(stage.produce(version, batch_of(b"a")))
    await asyncio.sleep(0.1)
    await stage.cluster.elect(2)
    refused, response = await asyncio.wait_for(waiting, 1)
    assert refused.error_code == NotLeaderOrFollowerError.code
    assert refused.current_leader == LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
    assert response.node_endpoints == (NodeEndpoint(node_id=2, host="host-2", port=9092),)


@pytest.mark.parametrize("version", [16, 17])
@on_stage
async def test_broker_that_stopped_leading_names_no_leader(stage: Stage, version: int) -> None:
    waiting = asyncio.ensure_future(stage.fetch(version, max_wait_ms=5000, min_bytes=1))
    await asyncio.sleep(0.1)
    stage.cluster.nodes[1].replicas.registration_lost()
    refused, response = await asyncio.wait_for(waiting, 1)
    assert refused.error_code == NotLeaderOrFollowerError.code
    assert (refused.current_leader, response.node_endpoints) == (NO_LEADER, ())


@pytest.mark.parametrize("version", FETCH)
@on_stage
async def test_re_created_topic_is_noticed_from_version_13_on(stage: Stage, version: int) -> None:
    await stage.cluster.produce(b"a")

    async def error_of(topic_id: str) -> int:
        found, _ = await stage.fetch(version, topic_id=topic_id)
        assert bool(found.records) == (found.error_code == 0)
        code: int = found.error_code
        return code

    assert await error_of(TOPIC_ID) == 0
    assert await error_of(OTHER_ID) == (UnknownTopicIdError.code if version >= 13 else 0)
    # The broker has heard of the new topic, and still has the log of the deleted one.
    stage.tell(stage.cluster.nodes[1], OTHER_ID)
    assert await error_of(OTHER_ID) == (InconsistentTopicIdError.code if version >= 13 else 0)
    assert await error_of(TOPIC_ID) == (UnknownTopicIdError.code if version >= 13 else 0)

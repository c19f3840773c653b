"""The number of partitions of `__consumer_offsets`, which a broker keeps as long as the topic is the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cluster.state import TopicAssignment
from node.groups.offsets_topic import OffsetsTopic
from tests.node.memory_cluster import MemoryCluster
from tests.node.offsets_topic import OFFSETS, MemoryOffsetsTopic
from tests.node.topic_settings import broker_settings
from tests.virtual_time import VirtualClock, on_virtual_time, until
from tidelog.groups.offsets_topic import OFFSETS_TOPIC, partition_for
from tidelog.protocol.control_messages import TopicInfo, UpdateMetadataRequest


class ScriptedZooKeeper:
    """Answers reads of the topic with the latest scripted assignment."""

    def __init__(self, topic_id: str, partitions: int) -> None:
        self.answer_with(topic_id, partitions)
        self.answers = asyncio.Event()
        self.answers.set()

    def answer_with(self, topic_id: str, partitions: int) -> None:
        self.topic_id, self.partitions = topic_id, partitions

    async def read_topic(self, topic: str) -> TopicAssignment | None:
        found = TopicAssignment(topic, self.topic_id, dict.fromkeys(range(self.partitions), (1, 2, 3)))
        await self.answers.wait()
        return found


@on_virtual_time
async def test_recreated_topic_is_counted_again() -> None:
    zookeeper = ScriptedZooKeeper("one", 50)
    topic = OffsetsTopic(broker_settings(1), zookeeper, MemoryOffsetsTopic().create, VirtualClock())
    assert topic.partition_of("billing") is None, "a look-up is started"
    await until(lambda: topic.partition_of("billing") == partition_for("billing", 50))
    zookeeper.answer_with("another", 7)
    topic.hosted("one")
    assert topic.partition_of("billing") == partition_for("billing", 50)
    topic.hosted("another")
    assert topic.partition_of("billing") is None, "the number of the old topic does not count"
    await until(lambda: topic.partition_of("billing") == partition_for("billing", 7))
    topic.close()


@on_virtual_time
async def test_look_up_of_the_old_topic_is_not_taken_for_the_new_one() -> None:
    zookeeper = ScriptedZooKeeper("one", 50)
    zookeeper.answers.clear()
    topic = OffsetsTopic(broker_settings(1), zookeeper, MemoryOffsetsTopic().create, VirtualClock())
    assert topic.partition_of("billing") is None, "a read is in progress"
    await asyncio.sleep(0)
    zookeeper.answer_with("another", 7)
    topic.hosted("another")
    zookeeper.answers.set()
    await until(lambda: topic.partition_of("billing") is not None)
    assert topic.partition_of("billing") == partition_for("billing", 7)
    topic.close()


@on_virtual_time
async def test_broker_without_a_replica_counts_a_recreated_topic_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zookeeper = ScriptedZooKeeper("one", 50)
    monkeypatch.setattr(MemoryOffsetsTopic, "read_topic", lambda _, topic: zookeeper.read_topic(topic))
    async with MemoryCluster() as cluster:
        node, topic = cluster.nodes[2], cluster.nodes[2].groups.topic

        async def hear(*infos: TopicInfo, deleted: tuple[str, ...] = ()) -> None:
            await node.ask(UpdateMetadataRequest(3, 1, cluster.live(), (), infos, deleted), sender_epoch=1)

        await hear(TopicInfo(OFFSETS_TOPIC, "one", {}, 50))
        await hear(deleted=(OFFSETS_TOPIC,))
        await until(lambda: topic.partition_of("billing") == partition_for("billing", 50))
        zookeeper.answer_with("another", 7)
        await hear(TopicInfo(OFFSETS_TOPIC, "another", {}, 7))
        assert topic.partition_of("billing") is None, "the number of the old topic does not count"
        await until(lambda: topic.partition_of("billing") == partition_for("billing", 7))


@on_virtual_time
async def test_broker_with_a_stray_replica_knows_the_new_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zookeeper = ScriptedZooKeeper("topic-id-1", 1)
    monkeypatch.setattr(MemoryOffsetsTopic, "read_topic", lambda _, topic: zookeeper.read_topic(topic))
    async with MemoryCluster() as cluster:
        await cluster.elect(1, tp=OFFSETS)
        node, topic = cluster.nodes[2], cluster.nodes[2].groups.topic
        await until(lambda: topic.partition_of("billing") == 0)
        zookeeper.answer_with("another", 7)
        # While this broker was suspended, the topic was recreated without a replica here. The broker has registered
        # again.
        live = tuple(replace(each, epoch=each.epoch + 1000) if each.broker_id == 2 else each for each in cluster.live())
        recreated = TopicInfo(OFFSETS_TOPIC, "another", {}, 7)
        update = UpdateMetadataRequest(
            1, cluster.controller_epoch, live, (), (recreated,), (), {OFFSETS_TOPIC: "another"}
        )
        await node.ask(update, sender_epoch=1)
        assert node.replicas.get(OFFSETS) is None
        await until(lambda: topic.partition_of("billing") == partition_for("billing", 7))

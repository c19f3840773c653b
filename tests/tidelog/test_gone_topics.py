"""Test that records and calls which wait for a topic or partition fail once it certainly does not exist."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.tidelog.clients import a_producer, an_admin, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    ClusterAuthorizationFailedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from tidelog.protocol.messages import InitProducerIdRequest, MetadataRequest, MetadataResponse, NewTopic, TopicMetadata

#: A broker that does not know a topic yet denies it, too, so that only seconds of denial are certain.
CERTAIN_S = 4.5


def delete(cluster: FakeCluster, topic: str) -> None:
    del cluster.partitions[topic]


def refuse(cluster: FakeCluster, topic: str, code: int) -> None:
    """Let each broker answer metadata requests for the topic with this code from now on."""
    metadata = cluster.metadata

    def refused(broker: int, request: MetadataRequest) -> MetadataResponse:
        answer = metadata(broker, request)
        topics = tuple(TopicMetadata(each.name, code) if each.name == topic else each for each in answer.topics)
        return MetadataResponse(answer.cluster_id, answer.controller_id, answer.brokers, topics)

    cluster.metadata = refused  # type: ignore[method-assign]


@pytest.mark.parametrize("led", [True, False], ids=["refused by its leader", "without a leader"])
@on_virtual_time
async def test_records_fail_when_the_deletion_of_their_topic_is_certain(led: bool) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    cluster.create("other")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"before")
        if not led:
            partition.leader = -1
            for _ in range(3):
                await asyncio.sleep(0.2)
                await producer.client.try_refresh(producer.clock.monotonic_ms() + 1000)
        waiting = [await producer.send("t", b"%d" % number) for number in range(3)]
        delete(cluster, "t")
        started = seconds()
        await producer.flush()
        assert seconds() - started < CERTAIN_S
        for future in waiting:
            error = future.exception(0)
            assert isinstance(error, UnknownTopicOrPartitionError) and "topic 't' does not exist" in str(error)
        assert producer.sender.accumulator.buffered_bytes == 0
        await producer.send_and_wait("other", b"goes on")


@on_virtual_time
async def test_send_to_a_deleted_topic_fails_at_once_until_it_is_created_again() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"before")
        delete(cluster, "t")
        await (await producer.send("t", b"lost")).wait_done()
        started = seconds()
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 't' does not exist"):
            await producer.send("t", b"refused")
        assert seconds() - started < 0.1
        (partition,) = cluster.create("t")
        await producer.send_and_wait("t", b"anew")
    assert partition.values() == [b"anew"]


@on_virtual_time
async def test_a_topic_that_is_back_within_seconds_gets_the_records_that_wait() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"before")
        delete(cluster, "t")
        waiting = await producer.send("t", b"waits")
        await asyncio.sleep(1)
        (partition,) = cluster.create("t")
        assert (await waiting).offset == 0
    assert partition.values() == [b"waits"]


@on_virtual_time
async def test_records_of_a_partition_that_its_topic_has_no_more_fail_alone() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    async with a_producer(cluster) as producer:
        for number in range(2):
            await producer.send_and_wait("t", b"before", partition=number)
        gone = await producer.send("t", b"lost", partition=1)
        cluster.create("t", 1)
        kept = await producer.send("t", b"kept", partition=0)
        started = seconds()
        await producer.flush()
        assert seconds() - started < CERTAIN_S and kept.succeeded()
        assert isinstance(gone.exception(0), UnknownTopicOrPartitionError)
        assert "topic 't' has no partition 1" in str(gone.exception(0))


@on_virtual_time
async def test_records_of_a_topic_that_became_forbidden_fail_with_that_error() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"before")
        partition.leader = -1
        waiting = await producer.send("t", b"waits")
        refuse(cluster, "t", TopicAuthorizationFailedError.code)
        started = seconds()
        await producer.flush()
        assert seconds() - started < 2
        assert isinstance(waiting.exception(0), TopicAuthorizationFailedError)


@pytest.mark.parametrize("refusal", [ClusterAuthorizationFailedError, UnsupportedVersionError])
@on_virtual_time
async def test_records_fail_if_the_producer_id_is_finally_rejected(refusal: Any) -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.refusals[InitProducerIdRequest].append(refusal.code)
    async with a_producer(cluster) as producer:
        refused = await producer.send("t", b"v")
        await producer.flush(5)
        assert isinstance(refused.exception(0), refusal)
        await producer.send_and_wait("t", b"next")  # requests metadata, because the topic may exist again


@on_virtual_time
async def test_creation_does_not_wait_for_leaders_of_a_topic_deleted_meanwhile() -> None:
    cluster = FakeCluster()
    create = cluster.create

    def create_without_leaders(topic: str, partitions: int = 1) -> Any:
        made = create(topic, partitions)
        made[0].leader = -1
        return made

    cluster.create = create_without_leaders  # type: ignore[method-assign]
    async with an_admin(cluster) as admin:
        creating = asyncio.create_task(admin.create_topics([NewTopic("t", 2, 1)]))
        await asyncio.sleep(1)
        assert not creating.done()
        delete(cluster, "t")
        started = seconds()
        with pytest.raises(UnknownTopicOrPartitionError):
            await creating
        assert seconds() - started < CERTAIN_S

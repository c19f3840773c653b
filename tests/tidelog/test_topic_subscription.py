"""Consumers that subscribe without a group: they read every partition of their topics."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tidelog
from tests.tidelog.clients import a_consumer, in_memory, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tests.tidelog.group_stories import Notes, parts
from tests.virtual_time import on_virtual_time
from tidelog.aio import Consumer
from tidelog.errors import (
    IllegalStateError,
    InvalidGroupIdError,
    NoBrokersError,
    UnknownTopicOrPartitionError,
)
from tidelog.protocol.group_messages import JoinGroupRequest, OffsetCommitRequest, OffsetFetchRequest


async def until_assigned(consumer: Consumer, count: int, time_limit_s: float = 20) -> None:
    began = seconds()
    while len(consumer.assignment()) != count:
        assert seconds() - began < time_limit_s, consumer.assignment()
        await consumer.poll(200)


@on_virtual_time
async def test_subscriber_without_a_group_reads_all_and_commits_nothing() -> None:
    cluster = FakeCluster()
    for topic in ("t", "u"):
        for partition in cluster.create(topic, 3):
            put(partition, b"a", b"b")
    async with a_consumer(cluster, auto_commit_interval_ms=0) as consumer:
        consumer.subscribe(["t", "u"])
        assert consumer.subscription() == {"t", "u"} and consumer.assignment() == set()
        assert len(await read(consumer, 12)) == 12
        assert consumer.assignment() == parts(0, 1, 2) | parts(0, 1, 2, topic="u")
        assert await consumer.poll(100) == {}
        with pytest.raises(InvalidGroupIdError, match="commit needs a group: give the consumer a group_id"):
            await consumer.commit()
    assert not any(cluster.sent(each) for each in (JoinGroupRequest, OffsetCommitRequest, OffsetFetchRequest))


@on_virtual_time
async def test_subscriber_starts_by_auto_offset_reset() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"old")
    async with a_consumer(cluster, auto_offset_reset="latest") as consumer:
        consumer.subscribe(["t"])
        await until_assigned(consumer, 1)
        assert await consumer.position(tidelog.TopicPartition("t", 0)) == 1
        put(partition, b"new")
        assert await read(consumer, 1) == [(0, 1, b"new")]


@on_virtual_time
async def test_new_partitions_are_assigned_and_the_listener_gets_only_these() -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 2)
    notes = Notes()
    async with a_consumer(cluster, metadata_max_age_ms=1000) as consumer:
        consumer.subscribe(["t"], listener=notes)
        await until_assigned(consumer, 2)
        partitions.append(FakePartition("t", 2, 1))
        put(partitions[2], b"x")
        assert await read(consumer, 1) == [(2, 0, b"x")]
        assert notes.shown == [("assigned", parts(0, 1)), ("assigned", parts(2))]
    assert notes.shown[2:] == [("revoked", parts(0, 1, 2))]


@on_virtual_time
async def test_pattern_follows_topics_created_and_deleted_later() -> None:
    cluster = FakeCluster()
    cluster.create("logs-1")
    cluster.create("other")
    async with a_consumer(cluster, metadata_max_age_ms=1000) as consumer:
        consumer.subscribe(pattern=re.compile("logs-.*"))
        await until_assigned(consumer, 1)
        put(cluster.create("logs-2")[0], b"x")
        await until_assigned(consumer, 2)
        assert consumer.subscription() == {"logs-1", "logs-2"}
        del cluster.partitions["logs-1"]
        began = seconds()
        while consumer.assignment() != parts(0, topic="logs-2"):
            assert seconds() - began < 20
            try:
                await consumer.poll(200)
            except UnknownTopicOrPartitionError as error:
                assert "logs-1" in str(error)


@on_virtual_time
async def test_topic_created_after_the_subscription_is_read() -> None:
    cluster = FakeCluster()
    async with a_consumer(cluster, metadata_max_age_ms=3_600_000) as consumer:
        consumer.subscribe(["late"])
        assert await consumer.poll(10_000) == {}
        put(cluster.create("late")[0], b"x")
        assert await read(consumer, 1) == [(0, 0, b"x")]


@on_virtual_time
async def test_deleted_topic_is_raised_once_and_others_are_read() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    (kept,) = cluster.create("u")
    notes, errors = Notes(), []
    async with a_consumer(cluster, metadata_max_age_ms=1000) as consumer:
        consumer.subscribe(["t", "u"], listener=notes)
        await until_assigned(consumer, 2)
        del cluster.partitions["t"]
        began = seconds()
        while len(consumer.assignment()) == 2 or not errors:
            assert seconds() - began < 20
            try:
                await consumer.poll(200)
            except UnknownTopicOrPartitionError as error:
                errors.append(str(error))
        assert "'t' does not exist" in errors[-1]
        assert notes.shown[-1] == ("revoked", parts(0))
        put(kept, b"x")
        while True:
            try:
                assert await read(consumer, 1) == [(0, 0, b"x")]
                break
            except UnknownTopicOrPartitionError:
                assert seconds() - began < 30


@on_virtual_time
async def test_another_subscription_replaces_the_first_at_the_next_poll() -> None:
    cluster = FakeCluster()
    put(cluster.create("t")[0], b"t")
    put(cluster.create("u")[0], b"u")
    notes = Notes()
    async with a_consumer(cluster) as consumer:
        consumer.subscribe(["t"], listener=notes)
        await until_assigned(consumer, 1)
        consumer.subscribe(["u"], listener=notes)
        assert [value for _, _, value in await read(consumer, 1)] == [b"u"]
        assert consumer.assignment() == parts(0, topic="u")
        assert notes.shown == [("assigned", parts(0)), ("revoked", parts(0)), ("assigned", parts(0, topic="u"))]


@on_virtual_time
async def test_unsubscribed_consumer_may_assign_partitions() -> None:
    cluster = FakeCluster()
    put(cluster.create("t")[0], b"x")
    notes = Notes()
    async with a_consumer(cluster) as consumer:
        client = consumer.client
        before = len(client._subscribers)
        consumer.subscribe(["t"], listener=notes)
        await until_assigned(consumer, 1)
        with pytest.raises(IllegalStateError, match="unsubscribe before you assign"):
            consumer.assign(parts(0))
        with pytest.raises(IllegalStateError, match="exclude each other"):
            consumer.subscribe(pattern="t")
        await consumer.unsubscribe()
        assert (consumer.assignment(), consumer.subscription()) == (set(), set())
        assert notes.shown[-1] == ("revoked", parts(0))
        assert len(client._subscribers) == before
        consumer.assign(parts(0))
        assert await read(consumer, 1) == [(0, 0, b"x")]
        with pytest.raises(IllegalStateError, match="unsubscribe before you subscribe"):
            consumer.subscribe(["t"])


@on_virtual_time
async def test_listener_may_seek_and_must_not_poll() -> None:
    cluster = FakeCluster()
    put(cluster.create("t")[0], b"a", b"b")

    class Seeks:
        def __init__(self, consumer: Consumer) -> None:
            self._consumer = consumer

        def on_partitions_revoked(self, revoked: Any) -> None:
            """Nothing is revoked in this story before the end."""

        async def on_partitions_assigned(self, assigned: Any) -> None:
            for tp in assigned:
                self._consumer.seek(tp, 1)
            with pytest.raises(IllegalStateError, match="a rebalance listener must not poll"):
                await self._consumer.poll()

    async with a_consumer(cluster) as consumer:
        consumer.subscribe(["t"], listener=Seeks(consumer))
        assert await read(consumer, 1) == [(0, 1, b"b")]


@on_virtual_time
async def test_poll_raises_the_error_of_its_listener() -> None:
    cluster = FakeCluster()
    put(cluster.create("t")[0], b"x")

    class Raises:
        def on_partitions_revoked(self, revoked: Any) -> None:
            """Nothing is revoked in this story before the end."""

        def on_partitions_assigned(self, assigned: Any) -> None:
            raise LookupError("the listener's own")

    async with a_consumer(cluster) as consumer:
        consumer.subscribe(["t"], listener=Raises())
        with pytest.raises(LookupError, match="the listener's own"):
            await read(consumer, 1)
        assert await read(consumer, 1) == [(0, 0, b"x")]


@on_virtual_time
async def test_subscriber_without_any_broker_gets_an_error() -> None:
    cluster = FakeCluster()
    for broker in list(cluster.live):
        cluster.kill(broker)
    async with a_consumer(cluster) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(NoBrokersError):
            await consumer.poll(60_000)


def test_synchronous_iteration_over_a_subscription_without_a_group() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, b"a", b"b")
    with in_memory(tidelog.Consumer, cluster, auto_offset_reset="earliest", consumer_timeout_ms=500) as consumer:
        consumer.subscribe(["t"])
        assert sorted(record.value or b"" for record in consumer) == [b"a", b"a", b"b", b"b"]
        consumer.unsubscribe()

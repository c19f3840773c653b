"""Test connections to brokers whose address changes, and the topics that a client remembers."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.tidelog.clients import a_consumer, a_producer, in_memory, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster, FakeConnection, FakePartition
from tests.tidelog.group_stories import Reading
from tests.virtual_time import VirtualClock, on_virtual_time, until
from tidelog.aio import Admin
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.metadata import ClusterView
from tidelog.client.settings import ClientSettings
from tidelog.errors import (
    BrokerNotAvailableError,
    ClosedError,
    DisconnectedError,
    NoBrokersError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.messages import MetadataRequest


@on_virtual_time
async def test_broker_at_another_brokers_address_is_rejected() -> None:
    cluster = FakeCluster(brokers=2)
    moved = False

    async def open_(endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> FakeConnection:
        there = Endpoint(endpoint.host, 1002) if moved else endpoint
        return await cluster.open(there, client_id=client_id, timeout_ms=timeout_ms, cluster_id=cluster_id)

    settings = ClientSettings(bootstrap=(Endpoint("fake", 1002),))
    clock = VirtualClock()
    client = ClusterClient(settings, clock=clock, opener=open_, rng=random.Random(1))
    await client.wait_for_metadata(clock.monotonic_ms() + 1000)
    moved = True  # broker 1 is gone, and the other one listens at its port
    with pytest.raises(BrokerNotAvailableError, match="is now broker 2, not broker 1"):
        await client.peer(1, 1000)
    await client.close()


@on_virtual_time
async def test_addresses_that_all_speak_another_protocol_end_the_wait_at_once() -> None:
    """A socket of ZeroMQ closes some connections before its first bytes arrive."""
    ends = {
        Endpoint("fake", 1): iter([ProtocolError("1 speaks ZeroMQ"), DisconnectedError("1 is lost")]),
        Endpoint("fake", 2): iter([DisconnectedError("2 is lost"), ProtocolError("2 speaks ZeroMQ")]),
    }

    async def open_(endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> FakeConnection:
        raise next(ends[endpoint])

    clock = VirtualClock()
    client = ClusterClient(ClientSettings(bootstrap=tuple(ends)), clock=clock, opener=open_)
    with pytest.raises(NoBrokersError, match=r"no broker of Kafka's protocol at fake:1, fake:2: .*2 speaks ZeroMQ"):
        await client.wait_for_metadata(clock.monotonic_ms() + 600_000)
    assert [next(each, None) for each in ends.values()] == [None, None], "each address was asked twice"
    await client.close()


@on_virtual_time
async def test_wait_for_a_partition_also_waits_for_its_forgotten_topic() -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 1)
    clock = VirtualClock()
    client = ClusterClient(ClientSettings(bootstrap=(Endpoint("fake", 1002),)), clock=clock, opener=cluster.open)
    await client.topic("t", clock.monotonic_ms() + 1000)

    def forget(_: ClusterView) -> None:
        unsubscribe()
        client.forget("t")
        partitions.append(FakePartition("t", 1, 1))

    unsubscribe = client.subscribe(forget)
    await client.partition(TopicPartition("t", 1), clock.monotonic_ms() + 5000)
    assert client.view.partition_count("t") == 2
    await client.close()


@on_virtual_time
async def test_wait_for_a_client_raises_closed_error_if_another_task_closes_it() -> None:
    cluster = FakeCluster()
    clock = VirtualClock()
    client = ClusterClient(ClientSettings(bootstrap=(Endpoint("fake", 1002),)), clock=clock, opener=cluster.open)
    await client.wait_for_metadata(clock.monotonic_ms() + 1000)
    cluster.hung.update(cluster.live)
    connecting = asyncio.create_task(client.peer(1, 5000))
    refreshing = asyncio.create_task(client.refresh(clock.monotonic_ms() + 5000))
    await asyncio.sleep(0.1)
    await client.close()
    for waiting in (connecting, refreshing):
        with pytest.raises(ClosedError):
            await waiting


@on_virtual_time
async def test_call_for_a_missing_topic_does_not_end_another_callers_wait() -> None:
    cluster = FakeCluster()
    clock = VirtualClock()
    client = ClusterClient(ClientSettings(bootstrap=(Endpoint("fake", 1002),)), clock=clock, opener=cluster.open)
    client.track("awaited")
    for topic in ("awaited", "asked for"):
        with pytest.raises(UnknownTopicOrPartitionError):
            await client.topic(topic, clock.monotonic_ms() + 10_000)
    cluster.create("awaited")
    await client.refresh(clock.monotonic_ms() + 1000)
    assert client.view.partition_count("awaited") == 1
    last = cluster.sent(MetadataRequest)[-1]
    assert isinstance(last, MetadataRequest) and last.topics == ("awaited",)
    await client.close()


@on_virtual_time
async def test_topic_missing_for_one_caller_is_requested_again_for_another() -> None:
    cluster = FakeCluster()
    clock = VirtualClock()
    client = ClusterClient(ClientSettings(bootstrap=(Endpoint("fake", 1002),)), clock=clock, opener=cluster.open)
    client.track("t")
    with pytest.raises(UnknownTopicOrPartitionError):
        await client.topic("t", clock.monotonic_ms() + 10_000)
    cluster.create("t")
    assert (await client.topic("t", clock.monotonic_ms() + 10_000)).name == "t"
    await client.close()


# --- what is forgotten ----------------------------------------------------------------------------

MINUTE_S = 60


def asked_for(cluster: FakeCluster) -> tuple[str, ...]:
    """The topics that the last metadata request named, apart from requests for all topics."""
    named = [each.topics for each in cluster.sent(MetadataRequest) if isinstance(each, MetadataRequest)]
    return next(topics for topics in reversed(named) if topics is not None)


@on_virtual_time
async def test_topic_that_an_admin_requested_once_is_forgotten() -> None:
    cluster = FakeCluster()
    async with in_memory(Admin, cluster, clock=VirtualClock()) as admin:
        for number in range(20):
            cluster.create(f"t{number}")
            await admin.describe_topics([f"t{number}"])
            with pytest.raises(UnknownTopicOrPartitionError):
                await admin.describe_topics([f"nowhere{number}"])
            with pytest.raises(UnknownTopicOrPartitionError):
                await admin.partition_facts(TopicPartition(f"missing{number}", 0))
            await admin.list_topics()
            await asyncio.sleep(MINUTE_S)
            assert len(asked_for(cluster)) <= 15
            assert admin.client.view.topics.keys() <= set(asked_for(cluster))
        await asyncio.sleep(5 * MINUTE_S)
        await admin.describe_cluster()
        assert asked_for(cluster) == ()
        assert (admin.client.view.topics, admin.client.view.refused) == ({}, {})


@on_virtual_time
async def test_topic_is_not_forgotten_while_a_caller_waits_for_it() -> None:
    cluster = FakeCluster()
    clock = VirtualClock()
    settings = ClientSettings(bootstrap=(Endpoint("fake", 1002),))
    client = ClusterClient(settings, clock=clock, opener=cluster.open)
    await client.wait_for_metadata(clock.monotonic_ms() + 1000)
    cluster.hung.update(cluster.live)
    waiting = asyncio.create_task(client.topic("t", clock.monotonic_ms() + 60 * MINUTE_S * 1000))
    await asyncio.sleep(7 * MINUTE_S)
    cluster.create("t")
    cluster.hung.clear()
    assert (await waiting).name == "t"
    await client.close()


@on_virtual_time
async def test_subscriber_requests_its_topics_but_not_deleted_ones() -> None:
    cluster = FakeCluster()
    reading = Reading(cluster, metadata_max_age_ms=10_000).begin(pattern="^day-")
    for day in range(14):
        put(cluster.create(f"day-{day}")[0], b"news")
        cluster.create(f"other-{day}")
        await until(lambda count=day + 1: len(reading.seen) == count)
        cluster.partitions.pop(f"day-{day - 1}", None)
        await asyncio.sleep(MINUTE_S)
    assert reading.consumer.subscription() == {"day-13"}
    needed = {f"day-{day}" for day in range(6, 14)} | {OFFSETS_TOPIC}
    assert {"day-13", OFFSETS_TOPIC} <= set(asked_for(cluster)) <= needed
    assert reading.consumer.client.view.topics.keys() <= needed
    await reading.close()


@on_virtual_time
async def test_group_leader_does_not_forget_topics_of_other_members() -> None:
    cluster = FakeCluster()
    cluster.create("mine")
    cluster.create("theirs")
    leader, other = Reading(cluster).begin(["mine"]), Reading(cluster).begin(["theirs"])
    await until(lambda: len(leader.consumer.assignment()) == len(other.consumer.assignment()) == 1)
    generation = cluster.coordinator.groups["g"].generation
    await asyncio.sleep(20 * MINUTE_S)
    assert cluster.coordinator.groups["g"].generation == generation
    await leader.close()
    await other.close()


@on_virtual_time
async def test_assigned_topic_is_not_forgotten_while_the_reader_is_idle() -> None:
    cluster = FakeCluster()
    partition = cluster.create("t")[0]
    async with a_consumer(cluster) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.pause(TopicPartition("t", 0))
        await consumer.poll(10)
        await asyncio.sleep(60 * MINUTE_S)
        assert asked_for(cluster) == ("t",)
        consumer.resume(TopicPartition("t", 0))
        put(partition, b"a")
        assert len(await read(consumer, 1)) == 1


@on_virtual_time
async def test_producer_finds_its_topic_again_after_a_long_pause() -> None:
    cluster = FakeCluster()
    cluster.create("once")
    cluster.create("often")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("once", b"a")
        for _ in range(15):
            await producer.send_and_wait("often", b"a")
            await asyncio.sleep(MINUTE_S)
        assert asked_for(cluster) == ("often",)
        assert producer.client.view.topics.keys() == {"often"}
        begun = seconds()
        await producer.send_and_wait("once", b"b")
        assert seconds() - begun < 0.1


@on_virtual_time
async def test_producer_uses_the_present_partitions_after_a_long_pause() -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 1)
    keys = [b"%d" % number for number in range(20)]
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"a", key=keys[0])
        await asyncio.sleep(20 * MINUTE_S)
        partitions += [FakePartition("t", number, 1) for number in range(1, 4)]
        await asyncio.sleep(20 * MINUTE_S)
        first = [await producer.send("t", b"b", key=key) for key in keys]
        then = [await producer.send_and_wait("t", b"c", key=key) for key in keys]
        assert [(await each).partition for each in first] == [each.partition for each in then]
        assert {each.partition for each in then} == {0, 1, 2, 3}


@on_virtual_time
async def test_send_after_a_long_pause_raises_if_the_topic_was_deleted() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"a")
        del cluster.partitions["t"]
        await asyncio.sleep(20 * MINUTE_S)
        begun = seconds()
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 't' does not exist"):
            await producer.send("t", b"b")
        assert seconds() - begun < 5


@pytest.mark.parametrize("allowed", [None, False, True])
@on_virtual_time
async def test_requests_allow_brokers_to_create_topics_only_if_asked(allowed: bool | None) -> None:
    cluster = FakeCluster()
    options = {} if allowed is None else {"allow_auto_create_topics": allowed}
    async with a_consumer(cluster, **options) as consumer, a_producer(cluster, **options) as producer:
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send("t", b"x")
        with pytest.raises(UnknownTopicOrPartitionError):
            for _ in range(10):
                await consumer.poll(1000)
        requests = [each for each in cluster.sent(MetadataRequest) if each.topics == ("t",)]
        assert requests and {each.allow_auto_topic_creation for each in requests} == {bool(allowed)}

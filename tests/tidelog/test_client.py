"""Connections to brokers that are not who they were."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.tidelog.fake_cluster import FakeCluster, FakeConnection, FakePartition
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.client import ClusterClient
from tidelog.errors import BrokerNotAvailableError, ClosedError, UnknownTopicOrPartitionError
from tidelog.messages import MetadataRequest
from tidelog.metadata import ClusterView
from tidelog.model import Endpoint, TopicPartition
from tidelog.settings import ClientSettings


@on_virtual_time
async def test_a_broker_at_anothers_address_is_not_taken_for_it() -> None:
    cluster = FakeCluster(brokers=2)
    moved = False

    async def open_(endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> FakeConnection:
        there = Endpoint(endpoint.host, 1002) if moved else endpoint
        return await cluster.open(there, client_id=client_id, timeout_ms=timeout_ms, cluster_id=cluster_id)

    settings = ClientSettings(bootstrap=(Endpoint("fake", 1002),))
    clock = VirtualClock()
    client = ClusterClient(settings, clock=clock, opener=open_, rng=random.Random(1))
    await client.bootstrapped(clock.monotonic_ms() + 1000)
    moved = True  # broker 1 is gone, and the other one listens at its port
    with pytest.raises(BrokerNotAvailableError, match="is broker 2 now, not 1"):
        await client.peer(1, 1000)
    await client.close()


@on_virtual_time
async def test_a_topic_that_is_forgotten_while_a_partition_of_it_is_waited_for_is_waited_for_too() -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 1)
    clock = VirtualClock()
    client = ClusterClient(ClientSettings(bootstrap=(Endpoint("fake", 1002),)), clock=clock, opener=cluster.open)
    await client.topic("t", clock.monotonic_ms() + 1000)

    def forget(_: ClusterView) -> None:
        client.listeners.remove(forget)
        client.forget("t")
        partitions.append(FakePartition("t", 1, 1))

    client.listeners.append(forget)
    await client.partition(TopicPartition("t", 1), clock.monotonic_ms() + 5000)
    assert client.view.partition_count("t") == 2
    await client.close()


@on_virtual_time
async def test_who_waits_for_a_client_that_another_task_closes_is_told_so_and_not_cancelled() -> None:
    cluster = FakeCluster()
    clock = VirtualClock()
    client = ClusterClient(ClientSettings(bootstrap=(Endpoint("fake", 1002),)), clock=clock, opener=cluster.open)
    await client.bootstrapped(clock.monotonic_ms() + 1000)
    cluster.hung.update(cluster.live)
    connecting = asyncio.create_task(client.peer(1, 5000))
    refreshing = asyncio.create_task(client.refresh(clock.monotonic_ms() + 5000))
    await asyncio.sleep(0.1)
    await client.close()
    for waiting in (connecting, refreshing):
        with pytest.raises(ClosedError):
            await waiting


@on_virtual_time
async def test_who_asks_for_a_topic_that_is_not_there_ends_nobody_elses_wait_for_it() -> None:
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
async def test_a_topic_that_was_missing_for_somebody_else_is_looked_for_again_before_it_is_denied() -> None:
    cluster = FakeCluster()
    clock = VirtualClock()
    client = ClusterClient(ClientSettings(bootstrap=(Endpoint("fake", 1002),)), clock=clock, opener=cluster.open)
    client.track("t")
    with pytest.raises(UnknownTopicOrPartitionError):
        await client.topic("t", clock.monotonic_ms() + 10_000)
    cluster.create("t")
    assert (await client.topic("t", clock.monotonic_ms() + 10_000)).name == "t"
    await client.close()

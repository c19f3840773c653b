"""A deposed leader stops leading at once, whatever its disk and its queues still have to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from node.net.server import RequestContext
from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_node import Node
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    NotLeaderOrFollowerError,
    StaleBrokerEpochError,
)
from tidelog.model import LATEST_TIMESTAMP
from tidelog.protocol.control_messages import StopReplicaPartition, StopReplicaRequest


@on_virtual_time
async def test_broker_without_registration_leads_nothing() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert cluster.leader.replicas.led() == [TP]
        cluster.leader.replicas.registration_lost()
        assert cluster.leader.replicas.led() == []
        assert (await cluster.produce(b"a"))[0] == NotLeaderOrFollowerError.code


def hold_fence_writes(node: Node) -> asyncio.Event:
    """Hold the writes of the leader epoch fence until the returned event is set."""
    written = asyncio.Event()

    async def slowly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await written.wait()
        return function(*args, **kwargs)

    node.replicas.leader_epoch_fence.offload = slowly  # type: ignore[assignment]
    return written


@pytest.mark.parametrize("waits_for", ["the disk", "its turn"])
@on_virtual_time
async def test_broker_that_loses_its_registration_before_leading_leads_nothing(waits_for: str) -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(2, send_to=())
        node = cluster.nodes[2]
        written = hold_fence_writes(node)
        requests = [asyncio.ensure_future(node.ask(cluster.leader_and_isr(), sender_epoch=1))]
        await asyncio.sleep(0.1)
        if waits_for == "its turn":
            requests.append(asyncio.ensure_future(node.ask(cluster.leader_and_isr(), sender_epoch=1)))
            await asyncio.sleep(0.1)
        node.replicas.registration_lost()
        written.set()
        for answer in requests:
            with pytest.raises(StaleBrokerEpochError):
                await answer
        assert node.replicas.led() == []
        await cluster.elect(2, send_to=[2])
        assert node.replicas.led() == [TP], "the next registration leads in the next epoch"


@on_virtual_time
async def test_request_to_a_lost_registration_is_not_handled() -> None:
    """The server accepts the request's broker epoch. The loss of the registration is handled before the request."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(2, send_to=())
        node = cluster.nodes[2]
        context = RequestContext(b"", "", 1, -1, between_brokers=True)
        answer = node.handlers.handle(cluster.leader_and_isr(), context)
        assert isinstance(answer, Awaitable)
        node.replicas.registration_lost()
        with pytest.raises(StaleBrokerEpochError):
            await answer
        assert node.replicas.led() == []


@on_virtual_time
async def test_broker_that_stops_before_leading_leads_nothing() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(2, send_to=())
        node = cluster.nodes[2]
        written = hold_fence_writes(node)
        requests = asyncio.ensure_future(node.ask(cluster.leader_and_isr(), sender_epoch=1))
        await asyncio.sleep(0.1)
        closing = asyncio.ensure_future(node.replicas.close())
        await asyncio.sleep(0.1)
        written.set()
        with pytest.raises(StaleBrokerEpochError):
            await requests
        await closing
        with pytest.raises(StaleBrokerEpochError):
            await node.ask(cluster.leader_and_isr(), sender_epoch=1)
        assert node.replicas.led() == []


@on_virtual_time
async def test_deposed_leader_stops_before_its_slow_disk_has_the_new_state() -> None:
    """The new leader may already acknowledge records that this broker does not have."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(2, send_to=())
        node = cluster.nodes[1]
        written = hold_fence_writes(node)
        requests = asyncio.ensure_future(node.ask(cluster.leader_and_isr(), sender_epoch=1))
        await asyncio.sleep(0.1)
        meanwhile = requests.done(), node.replicas.led(), (await node.look_up(LATEST_TIMESTAMP))[0]
        written.set()
        assert [each.error_code for each in (await requests).partitions] == [0]
        assert meanwhile == (False, [], NotLeaderOrFollowerError.code)
        assert node.replica().partition.leader == 2


@on_virtual_time
async def test_leader_told_to_stop_stops_before_earlier_requests_are_done() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        other = TP._replace(partition=1)
        await cluster.elect(2, send_to=(), tp=other)
        node = cluster.nodes[1]
        written = hold_fence_writes(node)
        before = asyncio.ensure_future(node.ask(cluster.leader_and_isr(other), sender_epoch=1))
        await asyncio.sleep(0.1)
        epoch = node.replica().partition.leader_epoch
        asked, led = [], []
        for later in (0, 1):
            stop = StopReplicaPartition(*TP, epoch + later, delete=False)
            asked.append(asyncio.ensure_future(node.ask(StopReplicaRequest(1, 1, (stop,)), sender_epoch=1)))
            await asyncio.sleep(0.1)
            led.append(node.replicas.led())
        waited = not any(each.done() for each in asked)
        written.set()
        await asyncio.gather(before, *asked)
        assert (waited, led) == (True, [[TP], []])


@pytest.mark.parametrize("reported_by", ["a dead controller", "a ZooKeeper that has gone back"])
@on_virtual_time
async def test_leader_does_not_stop_for_a_state_that_it_refuses(reported_by: str) -> None:
    async with MemoryCluster() as cluster:
        cluster.controller_epoch = 5
        await cluster.elect(1)
        node = cluster.nodes[1]
        request = cluster.leader_and_isr()
        (state,) = request.partitions
        later = replace(state, leader=2, leader_epoch=state.leader_epoch + 1)
        if reported_by == "a dead controller":
            request = replace(request, controller_epoch=4, partitions=(replace(later, partition_epoch=99),))
        else:
            request = replace(request, partitions=(replace(later, partition_epoch=state.partition_epoch),))
        written = hold_fence_writes(node)
        requests = asyncio.ensure_future(node.ask(request, sender_epoch=1))
        await asyncio.sleep(0.1)
        meanwhile = node.replicas.led()
        written.set()
        await requests
        assert meanwhile == node.replicas.led() == [TP]

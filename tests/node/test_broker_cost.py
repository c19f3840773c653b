"""A broker's work for a change of one partition does not depend on how many other partitions it hosts.

The work is counted in lines of Python that are executed, so that the numbers for 100 and for 10,000 partitions must be
equal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest

from storage.directory.directory_checkpoints import Committed
from storage.directory.leadership_checkpoint import Leadership
from tests.executed_lines import executed_lines, executed_lines_until
from tests.node.client_requests import TP, fetch_request, produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_log import MemoryLogs
from tests.node.memory_node import Node
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import (
    LeaderAndIsrRequest,
    PartitionStateMessage,
    TopicInfo,
    UpdateMetadataRequest,
)
from tidelog.protocol.messages import FetchRequest, MetadataRequest

FEW, MANY = 100, 10_000
#: Longer than any measured work, so that no check of all ISRs falls into it.
MAX_LAG_MS = 600_000


class NotedLogs(MemoryLogs):
    """Logs whose checkpoints only note what they would write, because the directory writes each file as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: list[set[TopicPartition]] = []

    def checkpoint_high_watermarks(self, committed: Mapping[TopicPartition, Committed]) -> None:
        self.checkpoints.append(set(committed))

    def checkpoint_leaderships(self, leaderships: Mapping[TopicPartition, Leadership]) -> None:
        pass


def states(count: int, epoch: int = 0) -> tuple[PartitionStateMessage, ...]:
    return tuple(PartitionStateMessage("wide", number, 1, 1, epoch, (1,), epoch, (1,), ()) for number in range(count))


async def hosting(cluster: MemoryCluster, count: int) -> Node:
    """Return the only broker, which leads TP and so many partitions of another topic."""
    cluster.configs = {}
    node, topic = cluster.nodes[1], TopicInfo("wide", cluster.topic_id, {}, count)
    await cluster.elect(1)
    live, every = cluster.live(), {TP.topic: cluster.topic_id, "wide": cluster.topic_id}
    await node.ask(LeaderAndIsrRequest(1, 1, states(count), (topic,), live), sender_epoch=1)
    mine = cluster.leader_and_isr()
    topics = (topic, *mine.topics)
    everything = UpdateMetadataRequest(1, 1, live, (*states(count), *mine.partitions), topics, (), every)
    await node.ask(everything, sender_epoch=1)
    await node.replicas.checkpoint_high_watermarks()
    await node.ask(MetadataRequest(("t", "wide")))
    node._ticking.cancel()  # so that only the measured work runs
    return node


def produce(cluster: MemoryCluster, node: Node) -> Awaitable[object]:
    return node.ask(produce_request(b"a"))


def consume(cluster: MemoryCluster, node: Node) -> Awaitable[object]:
    return node.ask(fetch_request(0))


def begin_a_follower_session(cluster: MemoryCluster, node: Node) -> Awaitable[object]:
    request = FetchRequest(2, 0, 1, 1 << 20, fetch_request(0, epoch=0).partitions, session_id=0, session_epoch=0)
    return node.ask(request, peer=b"follower", sender_epoch=102)


def get_another_state(cluster: MemoryCluster, node: Node) -> Awaitable[object]:
    return node.ask(UpdateMetadataRequest(1, 1, cluster.live(), states(1, epoch=3), ()), sender_epoch=1)


def begin_an_epoch(cluster: MemoryCluster, node: Node) -> Awaitable[object]:
    return cluster.elect(1)


def describe_a_changed_topic(cluster: MemoryCluster, node: Node) -> Awaitable[object]:
    node.metadata.update(UpdateMetadataRequest(1, 1, (), cluster.leader_and_isr().partitions, ()))
    return node.ask(MetadataRequest(("t",)))


async def describe_a_wide_topic_with_one_change(cluster: MemoryCluster, node: Node) -> None:
    node.metadata.update(UpdateMetadataRequest(1, 1, (), states(1, epoch=4), ()))
    await node.ask(MetadataRequest(("wide",)))


def describe_an_unchanged_topic(cluster: MemoryCluster, node: Node) -> Awaitable[object]:
    node.metadata.describe(("wide",))
    return node.ask(MetadataRequest(("wide",)))


def write_no_checkpoint(cluster: MemoryCluster, node: Node) -> Awaitable[object]:
    return node.replicas.checkpoint_high_watermarks()


async def write_a_checkpoint_of_one(cluster: MemoryCluster, node: Node) -> None:
    await cluster.produce(b"a")
    await node.replicas.checkpoint_high_watermarks()
    assert node.directory.checkpoints[-1] == {TP}


CHANGES: tuple[Callable[[MemoryCluster, Node], Awaitable[object]], ...] = (
    produce,
    consume,
    begin_a_follower_session,
    get_another_state,
    begin_an_epoch,
    describe_a_changed_topic,
    describe_a_wide_topic_with_one_change,
    describe_an_unchanged_topic,
    write_no_checkpoint,
    write_a_checkpoint_of_one,
)


@pytest.fixture(scope="module")
def counted() -> Mapping[int, Mapping[str, int]]:
    """Return the executed lines of each change, by its name, for FEW and for MANY partitions."""
    found: dict[int, dict[str, int]] = {FEW: {}, MANY: {}}

    @on_virtual_time
    async def count(partitions: int) -> None:
        async with MemoryCluster(1, directory=NotedLogs, max_lag_ms=MAX_LAG_MS) as cluster:
            node = await hosting(cluster, partitions)
            for change in CHANGES:
                work = change(cluster, node)
                found[partitions][change.__name__] = await executed_lines_until(work)
            found[partitions]["a tick"] = executed_lines(lambda: node.replicas.tick(VirtualClock().monotonic_ms()))

    for partitions in (FEW, FEW, MANY):  # the first run also fills caches of the process, such as that of logging
        count(partitions)
    return found


@pytest.mark.parametrize("change", [*(change.__name__ for change in CHANGES), "a tick"])
def test_change_of_one_partition_costs_the_same_beside_many(
    change: str, counted: Mapping[int, Mapping[str, int]]
) -> None:
    assert counted[FEW][change] == counted[MANY][change] > 5

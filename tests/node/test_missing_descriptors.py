"""Controller requests to a broker without free file descriptors fail retriably until a descriptor is free."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from storage.configs.log_config import LogConfig
from storage.descriptor_reserve import OutOfDescriptorsError
from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_log import MemoryLog, MemoryLogs
from tests.node.memory_node import Node
from tests.virtual_time import on_virtual_time
from tidelog.errors import RequestTimedOutError
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import (
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidelog.protocol.messages import Request, Response

OTHER = TopicPartition(TP.topic, 1)


class FloodedLogs(MemoryLogs):
    """Logs in memory. `lacking` are the partitions for whose files no descriptor is left."""

    def __init__(self) -> None:
        super().__init__()
        self.lacking: set[TopicPartition] = set()

    def get_or_create(
        self, tp: TopicPartition, topic_id: str, config: LogConfig, *, in_sync: bool = False
    ) -> MemoryLog:
        self._raise_if_lacking(tp)
        return super().get_or_create(tp, topic_id, config, in_sync=in_sync)

    def set_aside(self, tp: TopicPartition) -> None:
        self._raise_if_lacking(tp)
        super().set_aside(tp)

    def delete(self, *tps: TopicPartition) -> None:
        self._raise_if_lacking(*tps)
        super().delete(*tps)

    def _raise_if_lacking(self, *tps: TopicPartition) -> None:
        if self.lacking & {*tps}:
            raise OutOfDescriptorsError("none is left")


@asynccontextmanager
async def elected(send_to: Iterable[int]) -> AsyncIterator[tuple[MemoryCluster, Node, LeaderAndIsrRequest]]:
    """Yield a cluster, its broker 1, and the LeaderAndIsr request that makes broker 1 lead two partitions."""
    async with MemoryCluster(directory=FloodedLogs) as cluster:
        for tp in (TP, OTHER):
            await cluster.elect(1, tp=tp, send_to=send_to)
        first, second = cluster.leader_and_isr(TP), cluster.leader_and_isr(OTHER)
        yield cluster, cluster.nodes[1], replace(first, partitions=first.partitions + second.partitions)


async def answer_with_free_descriptors(node: Node, lacking: TopicPartition, request: Request) -> Response:
    """Return the answer once descriptors are free. Before that, the answers are retriable and no disk has failed."""
    node.directory.lacking = {lacking}
    for _ in range(2):
        with pytest.raises(RequestTimedOutError):
            await node.ask(request, sender_epoch=1)
        assert node.directory.works and not node.storage_errors
    node.directory.lacking = set()
    return await node.ask(request, sender_epoch=1)


@on_virtual_time
async def test_log_that_cannot_be_opened_is_retried_and_delays_no_other() -> None:
    async with elected(send_to=()) as (_, node, both):
        node.directory.lacking = {OTHER}
        with pytest.raises(RequestTimedOutError):
            await node.ask(both, sender_epoch=1)
        assert node.replicas.led() == [TP]
        answer = await answer_with_free_descriptors(node, OTHER, both)
        assert [each.error_code for each in answer.partitions] == [0, 0]
        assert node.replicas.led() == [TP, OTHER]


@on_virtual_time
async def test_log_that_cannot_be_deleted_is_retried() -> None:
    async with elected(send_to=(1,)) as (_, node, _):
        stops = tuple(StopReplicaPartition(tp.topic, tp.partition, 0, True) for tp in (TP, OTHER))
        answer = await answer_with_free_descriptors(node, OTHER, StopReplicaRequest(1, 1, stops))
        assert [each.error_code for each in answer.partitions] == [0, 0]
        assert len(node.replicas) == len(node.directory.logs()) == 0


@on_virtual_time
async def test_log_that_cannot_be_set_aside_is_retried() -> None:
    async with elected(send_to=(1,)) as (cluster, node, both):
        elsewhere = tuple(replace(each, leader_epoch=9, replicas=(2, 3)) for each in both.partitions)
        update = UpdateMetadataRequest(1, cluster.controller_epoch, cluster.live(), elsewhere, ())
        assert (await answer_with_free_descriptors(node, OTHER, update)).error_code == 0
        assert len(node.replicas) == len(node.directory.logs()) == 0
        assert len(node.directory.stray) == 2

"""A cluster in memory with groups: who leads the one partition of `__consumer_offsets` is said by the test."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_node import Node
from tests.node.offsets_topic import OFFSETS
from tidelog.control_messages import UpdateMetadataRequest
from tidelog.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError
from tidelog.group_messages import OffsetCommitPartition, OffsetCommitRequest, OffsetFetchRequest
from tidelog.messages import DescribePartition
from tidelog.model import TopicPartition

GROUP = "g"


class GroupCluster(MemoryCluster):
    """`coordinate(n)` elects broker n."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(group_settings=settings)

    async def __aenter__(self) -> GroupCluster:
        await self.elect(1)
        await self.inform()
        return self

    async def inform(self) -> None:
        """Tell all live brokers of the topic that groups consume."""
        state = self.leader_and_isr(TP)
        request = UpdateMetadataRequest(1, self.controller_epoch, self.live(), state.partitions, state.topics)
        for node in self.nodes.values():
            if node.alive:
                await node.ask(request, sender_epoch=1)

    async def coordinate(self, broker_id: int, **how: Any) -> None:
        """Elect, and wait until it answers."""
        await self.elect(broker_id, tp=OFFSETS, **how)
        while (await self.committed(to=broker_id))[0] in _NOT_YET:  # noqa: ASYNC110 — each turn asks anew
            await asyncio.sleep(0.01)

    @property
    def coordinator(self) -> Node:
        return self.nodes[self.states.states[OFFSETS].state.leader]

    async def commit(
        self, offset: int, *, tp: TopicPartition = TP, group: str = GROUP, to: int | None = None, **more: Any
    ) -> int:
        """The error code."""
        node = self.coordinator if to is None else self.nodes[to]
        part = OffsetCommitPartition(tp.topic, tp.partition, offset)
        response = await node.ask(OffsetCommitRequest(group, (part,), **more))
        [outcome] = response.partitions
        assert (outcome.topic, outcome.partition) == tp
        return int(outcome.error_code)

    async def committed(self, *, tp: TopicPartition = TP, group: str = GROUP, to: int | None = None) -> tuple[int, int]:
        """(error code, offset)"""
        node = self.coordinator if to is None else self.nodes[to]
        response = await node.ask(OffsetFetchRequest(group, (DescribePartition(*tp),)))
        if response.error_code:
            return response.error_code, -1
        [outcome] = response.partitions
        return outcome.error_code, outcome.committed_offset


_NOT_YET = (CoordinatorLoadInProgressError.code, CoordinatorNotAvailableError.code)

"""A cluster in memory with groups, in which the test elects the leader of the only `__consumer_offsets` partition."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_node import Node
from tests.node.offsets_topic import OFFSETS
from tidelog.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, MemberIdRequiredError
from tidelog.groups.assignment.consumer_protocol import Subscription, encode_subscription
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import UpdateMetadataRequest
from tidelog.protocol.group_messages import (
    DescribedGroup,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tidelog.protocol.messages import DescribePartition
from tidelog.records import encode_batch

GROUP = "g"
TP1 = TopicPartition("t", 1)
NOT_YET = (CoordinatorLoadInProgressError.code, CoordinatorNotAvailableError.code)


class GroupCluster(MemoryCluster):
    """Groups consume `t`, which has two partitions. `coordinate(n)` elects broker n."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(group_settings={"group_initial_rebalance_delay_ms": 0, **settings})

    async def __aenter__(self) -> GroupCluster:
        nothing_yet = UpdateMetadataRequest(1, self.controller_epoch, self.live(), (), (), every_topic={})
        for node in self.nodes.values():
            await node.ask(nothing_yet, sender_epoch=1)
        for tp in (TP, TP1):
            await self.elect(1, tp=tp)
            await self.inform(tp)
        return self

    async def inform(self, tp: TopicPartition, *, deleted: Sequence[str] = ()) -> None:
        """Send the state of this partition to all live brokers."""
        state = self.leader_and_isr(tp)
        known = ((), ()) if deleted else (state.partitions, state.topics)
        request = UpdateMetadataRequest(1, self.controller_epoch, self.live(), *known, tuple(deleted))
        for node in self.nodes.values():
            if node.alive:
                await node.ask(request, sender_epoch=1)

    async def coordinate(self, broker_id: int, **how: Any) -> None:
        """Elect the broker, and wait until it answers as the coordinator."""
        await self.elect(broker_id, tp=OFFSETS, **how)
        await self.inform(OFFSETS)
        while (await self.committed(to=broker_id))[0] in NOT_YET:  # noqa: ASYNC110 — each iteration sends a new request
            await asyncio.sleep(0.01)

    async def write(self, *records: tuple[bytes | None, bytes | None]) -> None:
        """Append committed records to the offsets topic without its coordinator."""
        for node in self.nodes.values():
            log = node.log(OFFSETS)
            batch = bytearray(encode_batch([(0, key, value, ()) for key, value in records]))
            batch[0:8] = log.log_end_offset.to_bytes(8, "big")
            log.append_as_follower(bytes(batch))

    @property
    def coordinator(self) -> Node:
        return self.nodes[self.states.states[OFFSETS].state.leader]

    def node(self, broker_id: int | None) -> Node:
        return self.coordinator if broker_id is None else self.nodes[broker_id]

    # --- requests of clients ---

    async def commit(
        self, offset: int, *, tp: TopicPartition = TP, group: str = GROUP, to: int | None = None, **more: Any
    ) -> int:
        """Commit an offset, and return the error code."""
        part = OffsetCommitPartition(tp.topic, tp.partition, offset)
        response = await self.node(to).ask(OffsetCommitRequest(group, (part,), **more))
        [outcome] = response.partitions
        assert (outcome.topic, outcome.partition) == tp
        return int(outcome.error_code)

    async def committed(self, *, tp: TopicPartition = TP, group: str = GROUP, to: int | None = None) -> tuple[int, int]:
        """Return the error code and the committed offset."""
        response = await self.node(to).ask(OffsetFetchRequest(group, (DescribePartition(*tp),)))
        if response.error_code:
            return response.error_code, -1
        [outcome] = response.partitions
        return outcome.error_code, outcome.committed_offset

    async def describe(self, group: str = GROUP) -> DescribedGroup:
        [described] = (await self.coordinator.ask(DescribeGroupsRequest((group,)))).groups
        assert isinstance(described, DescribedGroup)
        return described

    def client(self, **how: Any) -> GroupClient:
        return GroupClient(self, **how)


class GroupClient:
    """One member, which sends each request to the current coordinator."""

    def __init__(
        self, cluster: GroupCluster, *, group: str = GROUP, topics: Sequence[str] = ("t",), instance: str | None = None
    ) -> None:
        self._cluster = cluster
        self.group = group
        self.instance = instance
        self.protocol_type = "consumer"
        self.metadata = encode_subscription(Subscription(tuple(topics)))
        self.member_id = ""
        self.generation = -1
        self.session_timeout_ms = 10_000
        self.rebalance_timeout_ms = 20_000

    async def ask_to_join(self) -> JoinGroupResponse:
        response = await self._cluster.coordinator.ask(
            JoinGroupRequest(
                self.group,
                self.session_timeout_ms,
                self.rebalance_timeout_ms,
                self.member_id,
                self.instance,
                self.protocol_type,
                (JoinGroupProtocol("range", self.metadata),),
            )
        )
        assert isinstance(response, JoinGroupResponse)
        return response

    async def join(self) -> JoinGroupResponse:
        response = await self.ask_to_join()
        if response.error_code == MemberIdRequiredError.code:
            self.member_id = response.member_id
            response = await self.ask_to_join()
        if not response.error_code:
            self.member_id, self.generation = response.member_id, response.generation_id
        return response

    async def sync(self, **assignments: bytes) -> SyncGroupResponse:
        given = tuple(SyncGroupAssignment(member, data) for member, data in assignments.items())
        response = await self._cluster.coordinator.ask(
            SyncGroupRequest(self.group, self.generation, self.member_id, self.instance, assignments=given)
        )
        assert isinstance(response, SyncGroupResponse)
        return response

    async def settle(self) -> None:
        """Join as the only member, and get an assignment."""
        assert (await self.join()).error_code == 0
        assert (await self.sync(**{self.member_id: b"all of it"})).error_code == 0

    async def heartbeat(self) -> int:
        response = await self._cluster.coordinator.ask(
            HeartbeatRequest(self.group, self.generation, self.member_id, self.instance)
        )
        return int(response.error_code)

    async def commit(self, offset: int, **more: Any) -> int:
        named = {"generation_id": self.generation, "member_id": self.member_id, "group_instance_id": self.instance}
        return await self._cluster.commit(offset, group=self.group, **named | more)

"""Scripted members of a consumer group: they join, get their partitions and send heartbeats, and fetch nothing.

All members of a process run on one event loop, each on a connection of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tidelog.errors import MemberIdRequiredError, error_for
from tidelog.groups.assignment.assignors import ASSIGNORS, Candidate
from tidelog.groups.assignment.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tidelog.protocol.kafka.client.connection import Connection
from tools.bench.groups import group_calls
from tools.bench.results import NotMeasured

_SESSION_MS = 60_000
#: How long the other joins may take until the last member joins, for each member.
_JOIN_S = 0.002


@dataclass
class Member:
    """A member of `group`, which consumes a topic of `partitions` partitions.

    member_id    "" before the first join
    generation   the generation of its last assignment `owned`; −1 before the first
    """

    connection: Connection
    group: str
    topic: str
    partitions: int
    assignor: str
    member_id: str = ""
    generation: int = -1
    owned: tuple[TopicPartition, ...] = ()

    async def rebalance(self) -> None:
        """Join the next generation, and wait for the assignment. The group's leader makes all assignments."""
        joined = await self._join()
        assignments = self._assign(joined) if joined.members else ()
        asked = SyncGroupRequest(
            self.group, joined.generation_id, self.member_id, None, PROTOCOL_TYPE, self.assignor, assignments
        )
        synced = await self.connection.call(asked, timeout_ms=group_calls.TIMEOUT_MS)
        assert isinstance(synced, SyncGroupResponse)
        if error := error_for(synced.error_code):
            raise error
        self.generation, self.owned = joined.generation_id, decode_assignment(synced.assignment)

    async def heartbeat(self) -> None:
        """Send a heartbeat, and wait for the answer. Raises RebalanceInProgressError during a rebalance."""
        asked = HeartbeatRequest(self.group, self.generation, self.member_id)
        answer = await self.connection.call(asked, timeout_ms=group_calls.TIMEOUT_MS)
        assert isinstance(answer, HeartbeatResponse)
        if error := error_for(answer.error_code):
            raise error

    async def _join(self) -> JoinGroupResponse:
        while True:
            wanted = encode_subscription(Subscription((self.topic,), self.owned, self.generation))
            protocols = (JoinGroupProtocol(self.assignor, wanted),)
            asked = JoinGroupRequest(
                self.group, _SESSION_MS, _SESSION_MS, self.member_id, None, PROTOCOL_TYPE, protocols
            )
            answer = await self.connection.call(asked, timeout_ms=group_calls.TIMEOUT_MS)
            assert isinstance(answer, JoinGroupResponse)
            self.member_id = answer.member_id
            error = error_for(answer.error_code)
            if error is None:
                return answer
            if not isinstance(error, MemberIdRequiredError):
                raise error

    def _assign(self, joined: JoinGroupResponse) -> tuple[SyncGroupAssignment, ...]:
        members = [
            Candidate(member.member_id, member.group_instance_id, decode_subscription(member.metadata))
            for member in joined.members
        ]
        assignment = ASSIGNORS[self.assignor](members, {self.topic: self.partitions})
        return tuple(SyncGroupAssignment(member_id, encode_assignment(tps)) for member_id, tps in assignment.items())


@asynccontextmanager
async def group_of(
    bootstrap_servers: str, tps: Sequence[TopicPartition], assignor: str, count: int
) -> AsyncIterator[Sequence[Member]]:
    """Yield the members of a new group that have their partitions; they leave the group after the block."""
    topic = tps[0].topic
    group = f"{topic}-{assignor}"
    found = await group_calls.ready(bootstrap_servers, [group])
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(group_calls.connection_to(found[group])) for _ in range(count)]
        members = [Member(connection, group, topic, len(tps), assignor) for connection in connections]
        # An empty group first waits for more members.
        await asyncio.gather(*(member.rebalance() for member in members))
        yield members
        leaving = LeaveGroupRequest(group, tuple(LeavingMember(member.member_id) for member in members))
        answer = await connections[0].call(leaving, timeout_ms=group_calls.TIMEOUT_MS)
        assert isinstance(answer, LeaveGroupResponse)
        if error := error_for(answer.error_code):
            raise error


async def slowest_rebalance(members: Sequence[Member], tps: Sequence[TopicPartition], rounds: int) -> float:
    """Return the seconds of the slowest of several rebalances, in each of which all members join again.

    A rebalance is measured from the last member's join to the last assignment. Raises NotMeasured if not each partition
    is assigned to one member.
    """
    slowest = 0.0
    for _ in range(rounds):
        slowest = max(slowest, await _rebalance(members))
        owned = sorted(tp for member in members for tp in member.owned)
        if owned != sorted(tps):
            raise NotMeasured(f"{len(owned)} of {len(tps)} partitions are assigned")
    return slowest


async def _rebalance(members: Sequence[Member]) -> float:
    *others, last = members
    # The leader joined first when the group was empty. Its join alone makes a stable group rebalance.
    tasks = [asyncio.create_task(member.rebalance()) for member in others]
    await asyncio.sleep(_JOIN_S * len(members))
    started = time.perf_counter()
    await asyncio.gather(last.rebalance(), *tasks)
    return time.perf_counter() - started

"""Measures a rebalance of a large group: from the last member's join until each member has its assignment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import uvloop

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
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tidelog.protocol.kafka.client.connection import Connection
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.groups import group_calls
from tools.bench.results import Figure, NotMeasured

MEMBERS, PARTITIONS = 50, 200
_ROUNDS = 3
_SESSION_MS = 60_000
_TOGETHER_S = 0.1

_TOOK = Figure(
    "offsets-rebalance.last-join",
    f"rebalance of {MEMBERS} members over {PARTITIONS} partitions, after the last join",
    "ms",
    "≤ 1,000",
    kafka="rebalance:after_last_join_ms",
)
_STICKY = Figure("offsets-rebalance.cooperative", "… by cooperative-sticky", "ms", "≤ 1,000")


@dataclass
class _Member:
    """A group member that only rebalances: it sends no heartbeats and fetches nothing.

    member_id    "" before the first join
    generation   the generation of its last assignment `owned`; −1 before the first
    """

    connection: Connection
    group: str
    topic: str
    assignor: str
    member_id: str = ""
    generation: int = -1
    owned: tuple[TopicPartition, ...] = ()

    async def rebalance(self) -> None:
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
        assignment = ASSIGNORS[self.assignor](members, {self.topic: PARTITIONS})
        return tuple(SyncGroupAssignment(member_id, encode_assignment(tps)) for member_id, tps in assignment.items())


def measure(env: BenchEnvironment) -> dict[str, float]:
    tps = env.cluster.create_topic(PARTITIONS)
    return {
        figure.key: uvloop.run(_rebalance(env.cluster.bootstrap_servers, tps, assignor)) * 1e3
        for figure, assignor in ((_TOOK, "range"), (_STICKY, "cooperative-sticky"))
    }


async def _rebalance(bootstrap_servers: str, tps: Sequence[TopicPartition], assignor: str) -> float:
    """Return the seconds of the slowest of _ROUNDS rebalances, in each of which all members join again.

    A rebalance is measured from the last member's join. Raises NotMeasured if not all partitions are assigned.
    """
    topic = tps[0].topic
    group = f"{topic}-{assignor}"
    found = await group_calls.ready(bootstrap_servers, [group])
    async with AsyncExitStack() as stack:
        members = [
            _Member(await stack.enter_async_context(group_calls.connection_to(found[group])), group, topic, assignor)
            for _ in range(MEMBERS)
        ]
        # An empty group first waits for more members.
        await asyncio.gather(*(member.rebalance() for member in members))
        slowest = 0.0
        for _ in range(_ROUNDS):
            slowest = max(slowest, await _again(members))
            owned = sorted(tp for member in members for tp in member.owned)
            if owned != sorted(tps):
                raise NotMeasured(f"{len(owned)} of {len(tps)} partitions are assigned")
    return slowest


async def _again(members: Sequence[_Member]) -> float:
    *others, last = members
    # The leader joined first when the group was empty. Its join alone makes a stable group rebalance.
    tasks = [asyncio.create_task(member.rebalance()) for member in others]
    await asyncio.sleep(_TOGETHER_S)
    started = time.perf_counter()
    await asyncio.gather(last.rebalance(), *tasks)
    return time.perf_counter() - started


BENCHMARK = Benchmark(
    "offsets-rebalance",
    f"{MEMBERS} members, each on a connection of its own, all in one process; the slowest of {_ROUNDS}; Kafka's side: "
    "as many consumers in threads, from the coordinator's log line to the last assignment that a consumer receives",
    (_TOOK, _STICKY),
    measure,
)

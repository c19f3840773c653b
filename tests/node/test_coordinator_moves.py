"""A committed offset is a linearizable register although its coordinator moves (I17)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checker.judging import verdict_on
from tests.node.group_cluster import GroupCluster
from tests.node.offsets_topic import OFFSETS
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import RequestTimedOutError
from tidelog.history.events import Event
from tidelog.history.group_operations import CommitFailed, CommitInvoked, CommitOk, CommittedOk, CommitUnknown
from tidelog.model import TopicPartition
from verify.checker.outcomes import Outcome, commit_outcome, error_name

T = TypeVar("T")
TP = TopicPartition("t", 0)

GROUPS = ("g", "h")
BROKERS = st.integers(1, 3)
#: A request that a broker does not answer in time is sent again, as clients do.
_TIME_LIMIT_S = 3.0

STEPS = st.one_of(
    st.tuples(st.just("elect"), BROKERS, st.just(0)),
    st.tuples(st.just("kill"), BROKERS, st.just(0)),
    st.tuples(st.just("restart"), BROKERS, st.just(0)),
    st.tuples(st.just("cut"), BROKERS, BROKERS),
    st.tuples(st.just("heal"), st.just(0), st.just(0)),
    st.tuples(st.just("lost session"), BROKERS, st.just(0)),
    st.tuples(st.just("wait"), st.just(0), st.sampled_from([1, 3, 10, 50, 300, 2000])),
)


class Register:
    """The operations on one group's offset with their results. One client commits growing offsets; many fetch."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.events: list[Event] = []
        self._moments = itertools.count()

    def now(self) -> int:
        """Return a time that grows with each call, even if virtual time does not advance."""
        return round(asyncio.get_running_loop().time() * 1e9) + next(self._moments)

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)


async def keep_committing(cluster: GroupCluster, register: Register, broker_id: int) -> None:
    """Commit growing offsets at this broker; a commit with an unknown outcome is not repeated."""
    for offset in itertools.count():
        node, mark, asked = cluster.nodes[broker_id], (register.group, TP, offset), register.now()
        if node.alive:
            register.events.append(CommitInvoked(*mark, asked))
            code = await in_time(cluster.commit(offset, group=register.group, to=broker_id))
            error = error_name(RequestTimedOutError if code is None else code)
            if code == 0:
                register.events.append(CommitOk(*mark, asked, register.now()))
                await asyncio.sleep(0.002)
                continue
            kind = CommitFailed if commit_outcome([error]) is Outcome.FAILED else CommitUnknown
            register.events.append(kind(*mark, error, asked, register.now()))
        broker_id = broker_id % 3 + 1
        await asyncio.sleep(0.007)


async def keep_asking(cluster: GroupCluster, register: Register, broker_id: int) -> None:
    while True:
        asked, node = register.now(), cluster.nodes[broker_id]
        answer = await in_time(cluster.committed(group=register.group, to=broker_id)) if node.alive else None
        if answer is not None and answer[0] == 0:
            register.events.append(CommittedOk(register.group, TP, answer[1], asked, register.now()))
        await asyncio.sleep(0.003)


async def in_time(asked: Awaitable[T]) -> T | None:
    try:
        async with asyncio.timeout(_TIME_LIMIT_S):
            return await asked
    except TimeoutError:
        return None


async def elect(cluster: GroupCluster, leader: int) -> None:
    """Elect a leader cleanly, and inform all live brokers. A dead leader without a successor leads again later."""
    alive = {node.broker_id for node in cluster.nodes.values() if node.alive}
    isr = cluster.states.states[OFFSETS].state.isr
    candidates = [replica for replica in isr if replica in alive]
    if candidates:
        elected = leader if leader in candidates else candidates[0]
        await cluster.elect(elected, tp=OFFSETS, isr=candidates)


async def perform(cluster: GroupCluster, step: tuple[str, int, int]) -> None:
    action, broker_id, amount = step
    node = cluster.nodes.get(broker_id)
    leader = cluster.states.states[OFFSETS].state.leader
    if action == "elect":
        await elect(cluster, broker_id)
    elif action == "kill" and node is not None and node.alive:
        await cluster.kill(broker_id)
        if broker_id == leader:
            await elect(cluster, broker_id % 3 + 1)
    elif action == "restart" and node is not None and not node.alive:
        cluster.restart(broker_id)
        await elect(cluster, leader)
        await inform(cluster)
    elif action == "cut" and broker_id != amount:
        cluster.cut(broker_id, amount)
    elif action == "heal":
        cluster.heal()
    elif action == "lost session" and node is not None and node.alive:
        node.replicas.registration_lost()
        await elect(cluster, broker_id % 3 + 1)
    elif action == "wait":
        await asyncio.sleep(amount / 1000)


async def inform(cluster: GroupCluster) -> None:
    for tp in cluster.states.states:
        await cluster.inform(tp)


@pytest.mark.timeout(400)  # the test computes all the time, and other tests may use the processors
@settings(max_examples=15, deadline=None)
@given(st.lists(STEPS, min_size=3, max_size=30))
def test_committed_offset_is_a_linearizable_register(steps: list[tuple[str, int, int]]) -> None:
    @on_virtual_time
    async def story() -> None:
        async with GroupCluster(offsets_commit_timeout_ms=1000) as cluster:
            await cluster.coordinate(1)
            registers = [Register(group) for group in GROUPS]
            tasks = [asyncio.create_task(keep_committing(cluster, register, 1)) for register in registers]
            tasks += [
                asyncio.create_task(keep_asking(cluster, register, broker_id))
                for register in registers
                for broker_id in (1, 2, 3)
            ]
            await until(lambda: all(register.count(CommitOk) for register in registers))
            for step in steps:
                await perform(cluster, step)
            cluster.heal()
            for broker_id in (1, 2, 3):
                await perform(cluster, ("restart", broker_id, 0))
            await elect(cluster, 1)
            for kind in (CommitOk, CommittedOk):
                before = [(register, register.count(kind)) for register in registers]
                await until(lambda kind=kind, before=before: all(each.count(kind) > count for each, count in before))
            for task in tasks:
                task.cancel()
            for done in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(done, asyncio.CancelledError), done
            for register in registers:
                verdict = verdict_on(register.events, "I17")
                assert verdict.exit_code == 0, str(verdict)

    story()

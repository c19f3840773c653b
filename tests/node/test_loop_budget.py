"""The loop budget: the event loop waits at most once per turn for a slow disk, so that other work goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from node.runtime.loop_budget import LoopBudget
from tests.node.client_requests import TP, produce_request
from tests.node.group_cluster import GroupCluster
from tests.node.memory_cluster import MemoryCluster
from tests.node.scripted_leader import OTHER, ScriptedFollower, replica_of, stored, values
from tests.virtual_time import VirtualClock, on_virtual_time, until
from tidelog.protocol.group_messages import DeleteGroupsRequest
from tidelog.protocol.messages import (
    EpochEndOffset,
    FetchPartitionResponse,
    FetchResponse,
    OffsetForLeaderEpochResponse,
)


class Turns:
    """Records the turn of the event loop in which each append was made."""

    def __init__(self) -> None:
        self.number = 0
        self.appends: list[int] = []

    def slow(self, loop_budget: LoopBudget) -> None:
        """Make each append take a third of a second."""
        charge: Callable[[int], None] = loop_budget.charge

        def note(ms: int) -> None:
            self.appends.append(self.number)
            asyncio.get_running_loop().call_soon(self._next)
            charge(300)

        loop_budget.charge = note  # type: ignore[method-assign]

    def _next(self) -> None:
        self.number += 1

    @property
    def have_one_append_each(self) -> bool:
        """Return whether each turn has at most one append."""
        return len(set(self.appends)) == len(self.appends)


async def test_each_waiter_for_a_slow_disk_gets_its_own_loop_turn() -> None:
    loop_budget = LoopBudget()

    async def append() -> None:
        await loop_budget.yield_()
        loop_budget.charge(300)

    found = Turns()
    found.slow(loop_budget)
    await asyncio.gather(*(append() for _ in range(5)))
    assert len(found.appends) == 5 and found.have_one_append_each


async def test_quick_disk_delays_no_request() -> None:
    loop_budget = LoopBudget()
    loop_budget.charge(1)
    assert not loop_budget.exhausted


@on_virtual_time
async def test_leader_with_a_slow_disk_appends_once_per_turn_in_order() -> None:
    async with MemoryCluster() as cluster:
        found = Turns()
        await cluster.elect(1)
        found.slow(cluster.leader.replicas.loop_budget)
        answers = await asyncio.gather(*(cluster.leader.ask(produce_request(value)) for value in (b"a", b"b", b"c")))
        assert [answer.partitions[0].error_code for answer in answers] == [0, 0, 0]
        assert cluster.leader.log().values == [b"a", b"b", b"c"]
        assert len(found.appends) >= 3 and found.have_one_append_each


@on_virtual_time
async def test_follower_with_a_slow_disk_appends_once_per_turn() -> None:
    async with ScriptedFollower() as following:
        found = Turns()
        first, second = replica_of(TP), replica_of(OTHER)
        leader = await following.begin(first, second)
        found.slow(following.fetchers.loop_budget)
        _, answer = await leader.next_fetch()
        answer.set_result(
            FetchResponse(
                tuple(
                    FetchPartitionResponse(tp.topic, tp.partition, 0, 0, 0, 0, records=stored(b"a", offset=0))
                    for tp in (TP, OTHER)
                ),
                session_id=7,
            )
        )
        await until(lambda: values(first) == values(second) == [b"a"])
        assert len(found.appends) == 2 and found.have_one_append_each


@on_virtual_time
async def test_follower_with_a_slow_disk_truncates_once_per_turn() -> None:
    async with ScriptedFollower() as following:
        found = Turns()
        first, second = replica_of(TP, b"a", b"z"), replica_of(OTHER, b"a", b"z")
        leader = await following.begin(first, second)
        found.slow(following.fetchers.loop_budget)
        await until(lambda: bool(leader.asked))
        asked = leader.look_up(0)
        ends = tuple(EpochEndOffset(each.topic, each.partition, 0, 3, 1) for each in asked.partitions)
        assert len(ends) == 2
        leader.asked[0][1].set_result(OffsetForLeaderEpochResponse(ends))
        await until(lambda: values(first) == values(second) == [b"a"])
        assert len(found.appends) == 2 and found.have_one_append_each


# --- a coordinator's own records ---------------------------------------------------------------------

GROUPS = ("g", "h", "i")


@on_virtual_time
async def test_coordinator_with_a_slow_disk_drops_one_groups_offsets_per_turn() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        for group in GROUPS:
            assert await cluster.commit(5, group=group) == 0
        found = Turns()
        found.slow(cluster.coordinator.replicas.loop_budget)
        await cluster.inform(TP, deleted=("t",))
        await asyncio.sleep(1)
        assert len(found.appends) == len(GROUPS) and found.have_one_append_each


@on_virtual_time
async def test_coordinator_with_a_slow_disk_expires_one_group_per_turn() -> None:
    async with GroupCluster(offsets_retention_minutes=1, offsets_retention_check_interval_ms=100_000) as cluster:
        await cluster.coordinate(1)
        for group in GROUPS:
            assert await cluster.commit(5, group=group) == 0
        found = Turns()
        found.slow(cluster.coordinator.replicas.loop_budget)
        await asyncio.sleep(110)
        assert cluster.coordinator.groups.expired == len(GROUPS)
        assert len(found.appends) == len(GROUPS) and found.have_one_append_each


@on_virtual_time
async def test_coordinator_with_a_slow_disk_deletes_one_group_per_turn() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        for group in GROUPS:
            assert await cluster.commit(5, group=group) == 0
        found = Turns()
        found.slow(cluster.coordinator.replicas.loop_budget)
        answer = await cluster.coordinator.ask(DeleteGroupsRequest(GROUPS))
        assert [each.error_code for each in answer.groups] == [0, 0, 0]
        assert len(found.appends) == len(GROUPS) and found.have_one_append_each


@on_virtual_time
async def test_coordinator_with_a_slow_disk_expires_one_groups_members_per_turn() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        for group in GROUPS:
            await cluster.client(group=group).settle()
        found = Turns()
        node = cluster.coordinator
        found.slow(node.replicas.loop_budget)
        node.groups.tick(VirtualClock().monotonic_ms() + 11_000)  # all sessions have expired
        assert len(found.appends) == 1
        await asyncio.sleep(12)
        assert [(await cluster.describe(group)).state for group in GROUPS] == ["Empty"] * len(GROUPS)
        assert len(found.appends) == len(GROUPS) and found.have_one_append_each


@on_virtual_time
async def test_members_expire_while_requests_wait_for_the_disk_in_every_turn() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        for group in GROUPS:
            await cluster.client(group=group).settle()
        node = cluster.coordinator
        node.replicas.loop_budget.charge(300)
        assert node.replicas.loop_budget.exhausted
        node.groups.tick(VirtualClock().monotonic_ms() + 11_000)
        await asyncio.sleep(1)
        assert [(await cluster.describe(group)).state for group in GROUPS] == ["Empty"] * len(GROUPS)

"""Members and committers, and what they take down of their groups."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.chaos.clients.chaos_stage import World
from tests.checker.judging import verdict_on
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import CoordinatorLoadInProgressError
from tidelog.history.group_operations import (
    Assigned,
    CommitFailed,
    CommitInvoked,
    CommitOk,
    CommittedFailed,
    CommittedOk,
    CommitUnknown,
    Revoked,
)
from tidelog.history.operations import Read
from tidelog.model import Endpoint
from tidelog.protocol.group_messages import OffsetCommitRequest
from verify.chaos.clients.committing import CommittedReader, Committer
from verify.chaos.clients.members import MemberClient
from verify.chaos.clients.producing import ProducingClient
from verify.chaos.load import LoadTopic

ORDERS = LoadTopic("orders", 4)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@on_virtual_time
async def test_members_share_process_and_commit_in_their_generation(strategy: str) -> None:
    world = World(ORDERS)
    members = [MemberClient(world.around, f"m{number}", "g", strategy) for number in range(2)]
    async with world.running(ProducingClient(world.around, "p", 1, rate=100), *members):
        await until(lambda: all(diary.events for name, diary in world.diaries.items() if name.startswith("m")))
        await until(lambda: len(world.told(CommitOk)) > 40)
        latest = max(event.generation for event in world.told(Assigned))
        owned = [set(event.tps) for event in world.told(Assigned) if event.generation == latest]
        await asyncio.sleep(5)
    assert set().union(*owned) == set(ORDERS.tps) and sum(map(len, owned)) == 4
    assert all(commit.generation > 0 and commit.member for commit in world.told(CommitOk))
    assert world.told(CommittedOk) and world.told(Revoked)
    assert {(each.tp, each.offset) for each in world.told(CommitInvoked)} >= {
        (each.tp, each.offset) for each in world.told(CommitOk)
    }
    ends = {(event.tp, event.offsets[-1] + 1) for event in world.told(Read)}
    assert ends >= {(each.tp, each.offset) for each in world.told(CommitOk)}  # to go on behind what was processed
    for tp in ORDERS.tps:
        read = sorted(offset for event in world.told(Read) if event.tp == tp for offset in event.offsets)
        assert read == list(range(len(read)))  # all, and nothing twice


@pytest.mark.parametrize("by_request", [False, True])
@on_virtual_time
async def test_a_committer_raises_its_registers_and_everybody_who_answers_answers_right(by_request: bool) -> None:
    world = World(ORDERS)
    tps = ORDERS.tps[:2]
    committer = Committer(world.around, "c", "g", tps, by_request=by_request)
    async with world.running(committer, CommittedReader(world.around, "r", ["g"], tps)):
        await until(lambda: len(world.told(CommitOk)) > 50 and len(world.told(CommittedOk)) > 50)
    values = [commit.offset for commit in world.told(CommitOk) if commit.tp == tps[0]]
    assert values == list(range(1, len(values) + 1))
    assert all(b.t0 >= a.t1 for a, b in pairwise([each for each in world.told(CommitOk) if each.tp == tps[0]]))
    assert {event.error for event in world.told(CommittedFailed)} <= {"NOT_COORDINATOR"}
    assert not verdict_on([*world.told(CommitOk), *world.told(CommittedOk)], "I17").violated


@on_virtual_time
async def test_a_refusal_before_the_write_is_a_failure_only_where_nobody_repeats() -> None:
    world = World(ORDERS)
    committer = Committer(world.around, "c", "g", ORDERS.tps[:1], by_request=True)
    async with world.running(committer):
        await until(lambda: len(world.told(CommitOk)) > 3)
        world.cluster.refusals[OffsetCommitRequest].append(CoordinatorLoadInProgressError.code)
        await until(lambda: len(world.told(CommitFailed)) > 0)
        await until(lambda: len(world.told(CommitOk)) > 6)
    assert [event.error for event in world.told(CommitFailed)] == ["COORDINATOR_LOAD_IN_PROGRESS"]


@on_virtual_time
async def test_a_later_life_goes_on_above_the_values_of_the_earlier_ones() -> None:
    world = World(ORDERS)
    first = Committer(world.around, "c", "g", ORDERS.tps[:1], by_request=True)
    async with world.running(first):
        await until(lambda: len(world.told(CommitOk)) > 3)
    highest = max(event.offset for event in world.told(CommitInvoked))
    world.around.stopping.clear()
    async with world.running(Committer(world.around, "c", "g", ORDERS.tps[:1], by_request=True, life=1)):
        await until(lambda: len(world.told(CommitOk)) > 3)
    assert min(event.offset for event in world.told(CommitInvoked)) > highest


@on_virtual_time
async def test_commits_without_an_answer_end_as_unknown_in_time() -> None:
    world = World(ORDERS, timeout_ms=2_000)
    clients = [Committer(world.around, f"c{n}", f"g{n}", ORDERS.tps[:1], by_request=n == 0) for n in range(2)]
    async with world.running(*clients):
        await until(lambda: len(world.told(CommitOk)) > 6)
        for broker in (1, 2, 3):
            world.cluster.kill(broker, elect=False)
        await until(lambda: len(world.told(CommitUnknown)) > 1)
    assert all(event.t1 - event.t0 <= 3e9 for event in world.told(CommitUnknown))


@on_virtual_time
async def test_who_finds_no_coordinator_rests_as_long_as_between_two_commits() -> None:
    world = World(ORDERS)
    dialled: list[Endpoint] = []

    async def open_and_count(endpoint: Endpoint, **how: Any) -> Any:
        dialled.append(endpoint)
        return await world.cluster.open(endpoint, **how)

    around = replace(world.around, opener=open_and_count)
    committer = Committer(around, "c", "g", ORDERS.tps[:1], by_request=True, pause_s=1)
    async with world.running(committer):
        await until(lambda: len(world.told(CommitOk)) > 3)
        for broker in (1, 2, 3):
            world.cluster.kill(broker, elect=False)
        dialled.clear()
        await asyncio.sleep(60)
        assert 3 * 30 <= len(dialled) <= 3 * 60  # each search asks all three

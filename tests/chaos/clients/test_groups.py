"""Test members and committers, and what they record about their groups."""

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
    stage = World(ORDERS)
    members = [MemberClient(stage.context, f"m{number}", "g", strategy) for number in range(2)]
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100), *members):
        await until(lambda: all(diary.events for name, diary in stage.diaries.items() if name.startswith("m")))
        await until(lambda: len(stage.events(CommitOk)) > 40)
        latest = max(event.generation for event in stage.events(Assigned))
        owned = [set(event.tps) for event in stage.events(Assigned) if event.generation == latest]
        await asyncio.sleep(5)
    assert set().union(*owned) == set(ORDERS.tps) and sum(map(len, owned)) == 4
    assert all(commit.generation > 0 and commit.member for commit in stage.events(CommitOk))
    assert stage.events(CommittedOk) and stage.events(Revoked)
    assert {(each.tp, each.offset) for each in stage.events(CommitInvoked)} >= {
        (each.tp, each.offset) for each in stage.events(CommitOk)
    }
    ends = {(event.tp, event.offsets[-1] + 1) for event in stage.events(Read)}
    assert ends >= {(each.tp, each.offset) for each in stage.events(CommitOk)}  # the next offset
    for tp in ORDERS.tps:
        read = sorted(offset for event in stage.events(Read) if event.tp == tp for offset in event.offsets)
        assert read == list(range(len(read)))  # every record once


@pytest.mark.parametrize("by_request", [False, True])
@on_virtual_time
async def test_committer_raises_its_offsets_and_all_answers_are_right(by_request: bool) -> None:
    stage = World(ORDERS)
    tps = ORDERS.tps[:2]
    committer = Committer(stage.context, "c", "g", tps, by_request=by_request)
    async with stage.running(committer, CommittedReader(stage.context, "r", ["g"], tps)):
        await until(lambda: len(stage.events(CommitOk)) > 50 and len(stage.events(CommittedOk)) > 50)
    values = [commit.offset for commit in stage.events(CommitOk) if commit.tp == tps[0]]
    assert values == list(range(1, len(values) + 1))
    assert all(b.t0 >= a.t1 for a, b in pairwise([each for each in stage.events(CommitOk) if each.tp == tps[0]]))
    assert {event.error for event in stage.events(CommittedFailed)} <= {"NOT_COORDINATOR"}
    assert not verdict_on([*stage.events(CommitOk), *stage.events(CommittedOk)], "I17").violated


@on_virtual_time
async def test_refusal_is_a_failure_only_for_a_commit_without_retries() -> None:
    stage = World(ORDERS)
    committer = Committer(stage.context, "c", "g", ORDERS.tps[:1], by_request=True)
    async with stage.running(committer):
        await until(lambda: len(stage.events(CommitOk)) > 3)
        stage.cluster.refusals[OffsetCommitRequest].append(CoordinatorLoadInProgressError.code)
        await until(lambda: len(stage.events(CommitFailed)) > 0)
        await until(lambda: len(stage.events(CommitOk)) > 6)
    assert [event.error for event in stage.events(CommitFailed)] == ["COORDINATOR_LOAD_IN_PROGRESS"]


@on_virtual_time
async def test_restarted_committer_continues_above_its_earlier_values() -> None:
    stage = World(ORDERS)
    first = Committer(stage.context, "c", "g", ORDERS.tps[:1], by_request=True)
    async with stage.running(first):
        await until(lambda: len(stage.events(CommitOk)) > 3)
    highest = max(event.offset for event in stage.events(CommitInvoked))
    stage.context.stopping.clear()
    async with stage.running(Committer(stage.context, "c", "g", ORDERS.tps[:1], by_request=True, life=1)):
        await until(lambda: len(stage.events(CommitOk)) > 3)
    assert min(event.offset for event in stage.events(CommitInvoked)) > highest


@on_virtual_time
async def test_commits_without_an_answer_end_as_unknown_in_time() -> None:
    stage = World(ORDERS, timeout_ms=2_000)
    clients = [Committer(stage.context, f"c{n}", f"g{n}", ORDERS.tps[:1], by_request=n == 0) for n in range(2)]
    async with stage.running(*clients):
        await until(lambda: len(stage.events(CommitOk)) > 6)
        for broker in (1, 2, 3):
            stage.cluster.kill(broker, elect=False)
        await until(lambda: len(stage.events(CommitUnknown)) > 1)
    assert all(event.t1 - event.t0 <= 3e9 for event in stage.events(CommitUnknown))


@on_virtual_time
async def test_committer_without_a_coordinator_pauses_between_searches() -> None:
    stage = World(ORDERS)
    dialled: list[Endpoint] = []

    async def open_and_count(endpoint: Endpoint, **how: Any) -> Any:
        dialled.append(endpoint)
        return await stage.cluster.open(endpoint, **how)

    context = replace(stage.context, opener=open_and_count)
    committer = Committer(context, "c", "g", ORDERS.tps[:1], by_request=True, pause_s=1)
    async with stage.running(committer):
        await until(lambda: len(stage.events(CommitOk)) > 3)
        for broker in (1, 2, 3):
            stage.cluster.kill(broker, elect=False)
        dialled.clear()
        await asyncio.sleep(60)
        assert 3 * 30 <= len(dialled) <= 3 * 60  # each search queries all three

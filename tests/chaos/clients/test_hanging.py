"""Test that a client reports an operation that hangs, so that the checker can name it (I22)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest

from tests.chaos.clients.chaos_stage import World
from tests.checker.judging import verdict_on
from tests.tidelog.clients import put
from tests.virtual_time import on_virtual_time, until
from tidelog.aio import Consumer
from tidelog.history.group_operations import CommitOk
from tidelog.history.operations import Overdue
from tidelog.protocol.messages import ListOffsetsRequest
from verify.chaos.clients.committing import CommittedReader, Committer
from verify.chaos.clients.direct import DirectReader
from verify.chaos.clients.lookup_client import LookupClient
from verify.chaos.clients.members import MemberClient
from verify.chaos.clients.reading import RandomSeekReader, ResetReader, TailReader
from verify.chaos.clients.support.lines import Line
from verify.chaos.load import LoadTopic
from verify.chaos.payload import make_id, payload
from verify.checker.findings import Finding

ORDERS = LoadTopic("orders", 2)
_WAITING = (TailReader, RandomSeekReader, ResetReader, DirectReader, MemberClient, LookupClient, CommittedReader)
#: The methods of a consumer that a client may await, besides a commit.
_CALLS = (
    "poll",
    "poll_batches",
    "position",
    "committed",
    "seek_to_time",
    "offsets_for_times",
    "beginning_offsets",
    "end_offsets",
)


async def never(*_: object, **__: object) -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("the operation never ends")


@pytest.mark.parametrize("kind", _WAITING)
@on_virtual_time
async def test_hanging_operation_is_reported_while_its_client_waits(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = World(LoadTopic("orders", 1))
    put(stage.cluster.partitions["orders"][0], payload(make_id(1, 1), 30))
    options: dict[type[Any], Any] = {
        TailReader: {"batches": True},
        MemberClient: {"group": "g", "strategy": "range"},
        CommittedReader: {"groups": ["g"], "tps": stage.context.tps},
    }
    client = kind(stage.context, "r", **options.get(kind, {}))
    running = asyncio.create_task(client.run())
    await until(lambda: bool(stage.diaries["r"].events))
    for call in _CALLS:
        monkeypatch.setattr(Consumer, call, never)
    monkeypatch.setattr(Line, "ask", never)
    await until(lambda: bool(stage.events(Overdue)))
    running.cancel()
    await asyncio.wait({running})
    named = honesty(stage, "r")
    assert named and {each.tp for each in named} == set(stage.context.tps)
    assert all("hangs" in each.says for each in named)


@pytest.mark.parametrize("kind", [DirectReader, MemberClient])
@on_virtual_time
async def test_hanging_request_beside_a_reading_loop_is_reported(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = World(LoadTopic("orders", 1))
    put(stage.cluster.partitions["orders"][0], payload(make_id(1, 1), 30))
    client = (
        DirectReader(stage.context, "r") if kind is DirectReader else MemberClient(stage.context, "r", "g", "range")
    )
    monkeypatch.setattr(Consumer, "committed", never)
    monkeypatch.setattr(stage.context.rng, "random", lambda: 0.0)  # the client sends a request at every opportunity
    ask = Line.ask

    async def hangs_at_look_ups(line: Line, request: Any, timeout_ms: int) -> Any:
        return await (never() if isinstance(request, ListOffsetsRequest) else ask(line, request, timeout_ms))

    monkeypatch.setattr(Line, "ask", hangs_at_look_ups)
    running = asyncio.create_task(client.run())
    await until(lambda: bool(stage.events(Overdue)))
    running.cancel()
    await asyncio.wait({running})
    assert {each.tp for each in honesty(stage, "r")} == set(stage.context.tps)


@on_virtual_time
async def test_read_of_a_paused_client_is_reported_only_if_it_hangs_later() -> None:
    stage = World(LoadTopic("orders", 1))
    history, ended = stage.context.history("r"), asyncio.Event()

    async def read() -> None:
        with stage.context.noticed(history, "read", stage.context.tps):
            await ended.wait()

    reading = asyncio.create_task(read())
    await asyncio.sleep(stage.context.timeout_ms / 1000 + 1.5)  # both the timer and the answer are due
    ended.set()
    await reading
    await asyncio.sleep(60)
    assert not stage.events(Overdue)


@pytest.mark.parametrize("by_request", [False, True])
@on_virtual_time
async def test_hanging_commit_of_an_idle_client_is_reported(by_request: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = World(ORDERS)
    committer = Committer(stage.context, "c", "g", stage.context.tps, by_request=by_request)
    running = asyncio.create_task(committer.run())
    await until(lambda: bool(stage.events(CommitOk)))
    for owner, call in ((Consumer, "commit"), (Line, "ask")):
        monkeypatch.setattr(owner, call, never)
    await until(lambda: bool(stage.events(Overdue)))
    running.cancel()
    await asyncio.wait({running})
    assert {each.tp for each in honesty(stage, "c")} == set(stage.context.tps)


def honesty(stage: World, name: str) -> Sequence[Finding]:
    diary = stage.diaries[name]
    return verdict_on(diary.events, "I22", client=diary.header).findings

"""Test that left out load is reported, and that a run without most of its load proves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import pytest

from tidelog.model import TopicPartition
from verify.chaos import run
from verify.chaos.load import Load
from verify.chaos.run import Request, _ChaosRun
from verify.chaos.runner import LEAST_RATE, Reporter
from verify.chaos.scenarios import SCENARIOS
from verify.chaos.targets.process_target import Cluster

NO_BROKER = "127.0.0.1:1"


@dataclass
class Quiet:
    """A cluster that receives no requests."""

    bootstrap_servers: str = NO_BROKER
    tps: Sequence[TopicPartition] = ()
    broker_ids: Sequence[int] = ()
    brokers: Sequence[object] = ()
    session_timeout_ms: int = 4_000
    replica_lag_time_max_ms: int = 4_000

    def use_clients(self, processes: object) -> None:
        """Ignore the clients, because no fault kills them."""

    async def view(self) -> None:
        await asyncio.Event().wait()


class FaultRunner:
    """A runner that has load from the beginning, and injects nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        """Accept all arguments."""

    async def rate(self) -> int:
        return LEAST_RATE

    async def run(self, *_: object) -> None:
        """Let two seconds of `Clock` pass."""
        Clock.now_s += 2


class Clock:
    """A replacement of the module `time`."""

    now_s = 0.0

    @classmethod
    def monotonic(cls) -> float:
        return cls.now_s


class Clients(run.Workload):
    """Client processes that do not exist, but whose output does."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop nothing."""


@dataclass
class Heard(Reporter):
    lines: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append(text)


async def undergone(directory: Path, monkeypatch: pytest.MonkeyPatch, *left_out: int) -> tuple[list[str], list[str]]:
    """Return the messages and troubles of a run of two seconds whose clients left out `count` of 500 records per
    second.
    """

    async def nothing(*_: Any) -> None:
        """Do nothing in place of a step that needs a cluster."""

    (directory / "clients").mkdir()
    for number, count in enumerate(left_out):
        said = f"12.345 left out {count} records: this machine is too slow\n" if count else "something else\n"
        (directory / "clients" / f"clients-{number}.0.log").write_text(said)
    for name, fake in (("FaultRunner", FaultRunner), ("Workload", Clients)):
        monkeypatch.setattr(run, name, fake)
    for name in ("_prepare", "_quiesce"):
        monkeypatch.setattr(_ChaosRun, name, nothing)
    monkeypatch.setattr(run, "time", Clock)
    request = Request(SCENARIOS["leader-kill"], (), 1, 1.0, Load(rate=500))
    heard = Heard()
    ordeal = _ChaosRun(request, cast(Cluster, Quiet()), directory, heard, asyncio.Event())
    await ordeal.run_load_and_faults()
    return heard.lines, ordeal.troubles


async def test_left_out_records_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, troubles = await undergone(tmp_path, monkeypatch, 300, 0, 100)
    assert lines == [
        "clients left out 400 records, 40 % of the load, because this machine is too slow for 500 records per second"
    ]
    assert troubles == []


async def test_load_with_most_records_left_out_is_a_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, troubles = await undergone(tmp_path, monkeypatch, 900)
    assert lines == []
    assert troubles == [
        "clients left out 900 records, 90 % of the load, because this machine is too slow for 500 records per second"
    ]


async def test_complete_load_is_not_mentioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await undergone(tmp_path, monkeypatch, 0) == ([], [])

"""Test processes on virtual time: held, killed, and never infinitely fast."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from random import Random

import pytest

from verify.simulation.timeline import NS_PER_S, Process, Timeline


class Told:
    """A timeline, and the reports of its processes."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.failures: list[str] = []
        self.said: list[tuple[float, str]] = []

    def process(self, name: str) -> Process:
        return Process(self.timeline, name, Random(1), self.failures.append)

    def say(self, text: str) -> None:
        self.said.append((round(self.timeline.now_ns / NS_PER_S, 2), text))

    def run(self, seconds: float) -> None:
        self.timeline.run(self.timeline.now_ns + round(seconds * NS_PER_S))


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    yield told
    told.timeline.end()


def test_idle_hours_take_no_real_time(told: Told) -> None:

    async def scenario() -> None:
        for hour in range(3):
            told.say(f"hour {hour}")
            await asyncio.sleep(3600)

    told.process("p").start(scenario())
    told.run(4 * 3600)
    assert told.said == [(0, "hour 0"), (3600, "hour 1"), (7200, "hour 2")]


def test_held_process_misses_its_timers_and_catches_up(told: Told) -> None:

    async def scenario() -> None:
        while True:
            await asyncio.sleep(1)
            told.say("tick")

    process = told.process("p")
    process.start(scenario())
    told.run(1.5)
    process.hold()
    told.run(5)
    process.resume()
    told.run(1.2)
    assert told.said == [(1, "tick"), (6.5, "tick"), (7.5, "tick")]


def test_killed_process_runs_no_cleanup(told: Told) -> None:

    async def scenario() -> None:
        try:
            await asyncio.sleep(5)
            told.say("never")
        finally:
            told.say("nor this")

    process = told.process("p")
    process.start(scenario())
    told.run(1)
    process.kill()
    told.run(10)
    assert told.said == []


def test_killed_process_is_freed_silently(
    told: Told, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    held: list[asyncio.Future[None]] = []

    async def stubborn(process: Process) -> None:
        try:
            held.append(process.create_future())
            await held[-1]
        finally:
            process.create_task(asyncio.sleep(5))
            await asyncio.sleep(5)
            await asyncio.sleep(5)

    processes = [told.process(f"p{number}") for number in range(3)]
    for process in processes:
        process.start(stubborn(process))
    told.run(1)
    processes[0].kill()
    late = told.process("late")
    late.start(stubborn(late))
    told.timeline.end()
    held.clear()
    del process, processes, late
    gc.collect()
    assert not said
    assert not told.failures
    assert capfd.readouterr().err == ""


def test_work_on_a_thread_takes_time_and_returns_its_result(told: Told) -> None:

    async def scenario() -> None:
        told.say(await asyncio.to_thread(str.upper, "done"))
        try:
            await asyncio.to_thread(int, "no number")
        except ValueError:
            told.say("failed")

    told.process("p").start(scenario())
    told.run(1)
    assert [text for _, text in told.said] == ["DONE", "failed"]


def test_busy_process_does_not_block_time_or_others(told: Told) -> None:

    async def busy() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def patient() -> None:
        await asyncio.sleep(0.05)
        told.say("here")

    told.process("busy").start(busy())
    told.process("patient").start(patient())
    told.run(0.1)
    assert told.said == [(0.05, "here")]


def test_uncaught_exception_is_reported(told: Told) -> None:
    process = told.process("p")
    process.call_soon(lambda: 1 // 0)
    told.run(1)
    assert "ZeroDivisionError" in told.failures[0]

"""Test processes on virtual time: held, killed, and never infinitely fast."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from random import Random

import pytest

from verify.simulation.timeline import NS_PER_S, Process, Timeline


class TimelineStage:
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
def stage() -> Iterator[TimelineStage]:
    stage = TimelineStage()
    yield stage
    stage.timeline.end()


def test_idle_hours_take_no_real_time(stage: TimelineStage) -> None:

    async def scenario() -> None:
        for hour in range(3):
            stage.say(f"hour {hour}")
            await asyncio.sleep(3600)

    stage.process("p").start(scenario())
    stage.run(4 * 3600)
    assert stage.said == [(0, "hour 0"), (3600, "hour 1"), (7200, "hour 2")]


def test_held_process_misses_its_timers_and_catches_up(stage: TimelineStage) -> None:

    async def scenario() -> None:
        while True:
            await asyncio.sleep(1)
            stage.say("tick")

    process = stage.process("p")
    process.start(scenario())
    stage.run(1.5)
    process.hold()
    stage.run(5)
    process.resume()
    stage.run(1.2)
    assert stage.said == [(1, "tick"), (6.5, "tick"), (7.5, "tick")]


def test_killed_process_runs_no_cleanup(stage: TimelineStage) -> None:

    async def scenario() -> None:
        try:
            await asyncio.sleep(5)
            stage.say("never")
        finally:
            stage.say("nor this")

    process = stage.process("p")
    process.start(scenario())
    stage.run(1)
    process.kill()
    stage.run(10)
    assert stage.said == []


def test_killed_process_is_freed_silently(
    stage: TimelineStage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
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

    processes = [stage.process(f"p{number}") for number in range(3)]
    for process in processes:
        process.start(stubborn(process))
    stage.run(1)
    processes[0].kill()
    late = stage.process("late")
    late.start(stubborn(late))
    stage.timeline.end()
    held.clear()
    del process, processes, late
    gc.collect()
    assert not said
    assert not stage.failures
    assert capfd.readouterr().err == ""


def test_work_on_a_thread_takes_time_and_returns_its_result(stage: TimelineStage) -> None:

    async def scenario() -> None:
        stage.say(await asyncio.to_thread(str.upper, "done"))
        try:
            await asyncio.to_thread(int, "no number")
        except ValueError:
            stage.say("failed")

    stage.process("p").start(scenario())
    stage.run(1)
    assert [text for _, text in stage.said] == ["DONE", "failed"]


def test_busy_process_does_not_block_time_or_others(stage: TimelineStage) -> None:

    async def busy() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def patient() -> None:
        await asyncio.sleep(0.05)
        stage.say("here")

    stage.process("busy").start(busy())
    stage.process("patient").start(patient())
    stage.run(0.1)
    assert stage.said == [(0.05, "here")]


def test_uncaught_exception_is_reported(stage: TimelineStage) -> None:
    process = stage.process("p")
    process.call_soon(lambda: 1 // 0)
    stage.run(1)
    assert "ZeroDivisionError" in stage.failures[0]

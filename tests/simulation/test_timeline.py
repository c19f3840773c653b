"""Processes on virtual time: held, killed, and never infinitely fast."""

from __future__ import annotations

import asyncio
from random import Random

from simulation.timeline import NS_PER_S, Process, Timeline


class Told:
    """A timeline, and what its processes have said."""

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


def test_hours_pass_as_fast_as_nothing_happens_in_them() -> None:
    told = Told()

    async def story() -> None:
        for hour in range(3):
            told.say(f"hour {hour}")
            await asyncio.sleep(3600)

    told.process("p").start(story())
    told.run(4 * 3600)
    assert told.said == [(0, "hour 0"), (3600, "hour 1"), (7200, "hour 2")]


def test_a_process_that_is_held_misses_its_time_and_catches_up() -> None:
    told = Told()

    async def story() -> None:
        while True:
            await asyncio.sleep(1)
            told.say("tick")

    process = told.process("p")
    process.start(story())
    told.run(1.5)
    process.hold()
    told.run(5)
    process.go_on()
    told.run(1.2)
    assert told.said == [(1, "tick"), (6.5, "tick"), (7.5, "tick")]


def test_a_process_that_is_killed_does_not_even_clean_up() -> None:
    told = Told()

    async def story() -> None:
        try:
            await asyncio.sleep(5)
            told.say("never")
        finally:
            told.say("nor this")

    process = told.process("p")
    process.start(story())
    told.run(1)
    process.kill()
    told.run(10)
    assert told.said == []


def test_work_on_a_thread_takes_time_and_its_outcome_comes_back() -> None:
    told = Told()

    async def story() -> None:
        told.say(await asyncio.to_thread(str.upper, "done"))
        try:
            await asyncio.to_thread(int, "no number")
        except ValueError:
            told.say("failed")

    told.process("p").start(story())
    told.run(1)
    assert [text for _, text in told.said] == ["DONE", "failed"]


def test_who_never_rests_lets_others_live_and_time_go_on() -> None:
    told = Told()

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


def test_what_nobody_catches_is_told() -> None:
    told = Told()
    process = told.process("p")
    process.call_soon(lambda: 1 // 0)
    told.run(1)
    assert "ZeroDivisionError" in told.failures[0]

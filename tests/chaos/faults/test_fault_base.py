"""Test the steps that heal a fault: their order, and how often they run."""

from __future__ import annotations

import asyncio
import random

import pytest

from verify.chaos.fault import Availability, Evidence, Target
from verify.chaos.faults.support.fault_base import FaultBase


class Noted(FaultBase):
    """A fault that records its heal steps."""

    row, name = "F0", "noted"
    availability = Availability(None)

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    async def inject(self, target: Target, rng: random.Random) -> str:
        return ""

    def bit(self, evidence: Evidence) -> str | None:
        return None

    def will(self, what: str, failures: int = 0) -> None:
        left = [OSError(what)] * failures

        async def on_heal() -> None:
            if left:
                raise left.pop()
            self.done.append(what)

        self.on_heal(on_heal)


async def test_last_change_is_healed_first_and_once() -> None:
    fault = Noted()
    fault.will("broker started")
    fault.will("cut healed")
    await fault.heal()
    await fault.heal()
    assert fault.done == ["cut healed", "broker started"]


async def test_failing_heal_step_does_not_prevent_others_and_is_repeated() -> None:
    fault = Noted()
    fault.will("broker started")
    fault.will("disk freed", failures=1)
    fault.will("cut healed")
    with pytest.raises(OSError, match="disk freed"):
        await fault.heal()
    assert fault.done == ["cut healed", "broker started"]
    await fault.heal()
    assert fault.done == ["cut healed", "broker started", "disk freed"]


async def test_failed_heal_steps_are_repeated_in_their_order() -> None:
    fault = Noted()
    fault.will("broker started", failures=1)
    fault.will("disk freed", failures=1)
    with pytest.raises(OSError, match="disk freed"):
        await fault.heal()
    await fault.heal()
    assert fault.done == ["disk freed", "broker started"]


async def test_task_of_a_fault_ends_before_earlier_changes_are_healed() -> None:
    fault = Noted()
    fault.will("broker started")

    async def kill_again_and_again() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            fault.done.append("killed no more")

    fault.meanwhile(kill_again_and_again())
    await asyncio.sleep(0)
    await fault.heal()
    assert fault.done == ["killed no more", "broker started"]


async def test_error_of_a_task_is_raised_after_all_heal_steps() -> None:
    fault = Noted()
    fault.will("broker started")

    async def fail() -> None:
        raise OSError("no such process")

    fault.meanwhile(fail())
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="no such process"):
        await fault.heal()
    assert fault.done == ["broker started"]
    await fault.heal()

"""Test rules that come and go during a fault: none remains after healing, and all matched packets count."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import cast

import pytest

from tests.virtual_time import on_virtual_time
from tidelog.errors import LocalError
from verify.chaos.fault import Target
from verify.chaos.faults.network.network import Resets
from verify.chaos.faults.support import packets


class Firewall:
    """The iptables of a machine: each command takes time, and each rule matches one packet."""

    takes_s = 0.1

    def __init__(self) -> None:
        self.rules: list[str] = []

    async def __call__(self, *command: str) -> str:
        """Run a command like `run_aside`, which completes what it has begun."""
        work = asyncio.ensure_future(self._run(*command))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait({work})
            raise

    async def _run(self, *command: str) -> str:
        await asyncio.sleep(self.takes_s)
        comment = next((each for each in command if each.startswith("tidelog-")), "")
        if "-nvxL" in command:
            return "\n".join(f"1 40 REJECT tcp /* {rule} */" for rule in self.rules)
        if "-I" in command:
            self.rules.append(comment)
        elif comment in self.rules:
            self.rules.remove(comment)
        elif "undo" not in command:
            raise LocalError("iptables: Bad rule (does a matching rule exist in that chain?).")
        return ""


class Placement:
    """Brokers 1 to 3 without a network."""

    broker_ids = (1, 2, 3)

    def __init__(self) -> None:
        self.undo = self

    def to_run(self, *command: str) -> Callable[[], None]:
        return lambda: None

    def prerequisite(self, need: object) -> Placement:
        return self

    def inside(self, member: str) -> tuple[str, ...]:
        return ("nsenter", member)

    def address(self, member: str) -> str:
        return f"address of {member}"


class ResetsOfTheFirst(Resets):
    async def choose_leader(self, target: Target, rng: random.Random) -> tuple[int, str]:
        return 1, "broker 1"


@pytest.mark.parametrize("tenths", range(100))
@on_virtual_time
async def test_on_and_off_resets_are_healed_at_any_time(tenths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    firewall = Firewall()
    monkeypatch.setattr(packets, "run_aside", firewall)
    fault = ResetsOfTheFirst()
    await fault.inject(cast(Target, Placement()), random.Random(1))
    await asyncio.sleep(tenths / 10 + 0.05)
    await fault.heal()
    assert firewall.rules == []
    await asyncio.sleep(10)
    assert firewall.rules == [], "no rule is made after the healing"


@on_virtual_time
async def test_packets_before_a_reinstallation_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "run_aside", Firewall())
    fault = ResetsOfTheFirst()
    await fault.inject(cast(Target, Placement()), random.Random(1))
    await asyncio.sleep(8)
    await fault.heal()
    assert fault.packets == 2 * 3, "from two brokers and the clients, twice"

"""Test each fault alone against real brokers under load: the cluster notices it, and recovers from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos.faults.stage import stage
from verify.chaos.faults import catalogue, prerequisites

#: One cluster for each group. Faults that need the clients of a run are not included (F16, F32, F55).
ACTS: dict[str, Sequence[str]] = {
    # The first faults need a controller that leads a partition, later ones need another leader.
    "killed": ("F6", "F1", "F2", "F3", "F4", "F5", "F14", "F33", "F34"),
    "paused": ("F7", "F8", "F9", "F10", "F15", "F17", "F18"),
    "stopped politely": ("F11", "F12", "F13"),
    "cut off": ("F19", "F20", "F21", "F22", "F23", "F24", "F25"),
    "bad networks": ("F26", "F27", "F28", "F29", "F30", "F31", "F39"),
    "sessions": ("F40", "F41", "F35", "F36", "F38"),
    "ZooKeeper away": ("F37", "F42"),
    "power": ("F43", "F44", "F45", "F46"),
    "damage": ("F47", "F48", "F49"),
    "disks": ("F50", "F51", "F52", "F53", "F54"),
}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("act", ACTS)
async def test_each_fault_bites_and_is_undone(act: str, tmp_path: Path) -> None:
    lacking: list[str] = []
    silent: list[str] = []
    async with stage(tmp_path, prerequisites()) as on:
        for row in ACTS[act]:
            for kind in catalogue()[row]:
                fault = kind()
                if missing := [why for need in fault.needs if (why := on.target.lacks(need))]:
                    lacking.append(f"{row}: {missing[0]}")
                    continue
                async with asyncio.timeout(200):
                    _, bit = await on.suffer(fault)
                if bit is None:
                    silent.append(f"{row} {fault.name}")
    assert not silent, f"no effect of {silent}"
    if lacking:
        pytest.skip("; ".join(lacking))

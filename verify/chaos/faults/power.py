"""Implement F43 and F44: machines that lose their power, and with it the bytes that were not on the disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from pathlib import Path
from typing import cast

from tidelog.model import TopicPartition
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.disks import Disks
from verify.chaos.faults.processes import BrokerFault, leader_of_one
from verify.chaos.faults.support import bite_detection
from verify.chaos.faults.support.fault_base import UNAVAILABLE, Timing
from verify.chaos.faults.support.layout import forget_boot, segments
from verify.chaos.faults.support.tools import run_aside
from verify.chaos.faults.support.topic_settings import flush_each

#: The time of load with records synced one by one, before the power is cut.
_SYNCED_S = 2.0


class PowerLost(BrokerFault):
    """A power loss of the machine of one leader, which is killed first. The broker must not lead before it has the
    records of the others.
    """

    row, name = "F43", "one machine lost its power"
    needs = frozenset({Need.DISKS, Need.PROCESSES, Need.RESTARTS})
    #: Longer than the election of new leaders takes, so that enough operations succeed during the fault.
    lasts_ms = (2_000, 3_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._lost_bytes = 0
        #: The brokers whose disks have lost what was not synced.
        self._went_down: set[int] = set()

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.refused_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        await self.kill(target, victim)
        await self.lose_power(target, victim)
        return f"power loss of {victim_name}"

    async def lose_power(self, target: Target, victim: int) -> None:
        """Cut the power of the machine of a stopped broker: files return to what was on the disk, and the boot id
        changes.

        Count the lost bytes of logs.
        """
        directory = target.broker_dir(victim)
        before = await asyncio.to_thread(_sizes, directory, target.tps)
        if await cast(Disks, target.prerequisite(Need.DISKS)).lose_power(str(victim)):
            self._went_down.add(victim)
        after = await asyncio.to_thread(_sizes, directory, target.tps)
        self._lost_bytes += sum(max(0, size - after.get(path, 0)) for path, size in before.items())
        await asyncio.to_thread(forget_boot, directory)

    def bit(self, evidence: Evidence) -> str | None:
        return f"{self._lost_bytes:,} bytes of logs were lost with the power" if self._lost_bytes else None


class AllPowerLost(PowerLost):
    """A power loss of all machines at once. The fault sets flush.messages=1 first and syncs the disks, so that every
    replica has synced what was acknowledged. Acknowledged records must survive.

    Without sync, an acknowledged record is lost with its last replica, as docs/OPERATIONS.md says, so there would be
    nothing to check. Logs may have no unsynced bytes, so a file that was never synced proves the power loss of each
    disk.
    """

    row, name = "F44", "all machines lost their power"
    availability = UNAVAILABLE

    async def inject(self, target: Target, rng: random.Random) -> str:
        await flush_each(self, target)
        disks = cast(Disks, target.prerequisite(Need.DISKS))
        for broker in target.broker_ids:  # records that were acknowledged before flush.messages was set
            await run_aside("sync", "-f", str(disks.mount_point(str(broker))))
        await asyncio.sleep(_SYNCED_S)
        order = rng.sample(target.broker_ids, len(target.broker_ids))
        await self.kill(target, *order)
        for broker in order:
            await self.lose_power(target, broker)
        return "power loss of all brokers, with flush.messages=1"

    def bit(self, evidence: Evidence) -> str | None:
        if not self._went_down.issuperset(self.victims):
            return None
        gone = bite_detection.all_registered_anew(evidence, self.victims)
        return f"{gone}; unsynced bytes were lost, {self._lost_bytes:,} of them in logs" if gone else None


def _sizes(broker_dir: Path, tps: Collection[TopicPartition]) -> dict[Path, int]:
    """Return the size of each segment of these logs by its path."""
    logs = (broker_dir / str(tp) for tp in tps)
    return {segment: segment.stat().st_size for log in logs for segment in segments(log)}

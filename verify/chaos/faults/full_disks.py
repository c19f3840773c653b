"""Implement F50 and F53: disks that are full, read-only or missing, or that belong to another broker."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

from tidelog.errors import LocalError
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.disks import FILLER, Disks, fill
from verify.chaos.faults.processes import BrokerFault, follower_of_one, leader_of_one
from verify.chaos.faults.support import bite_detection, layout
from verify.chaos.faults.support.broker_log_reader import BrokerLogReader
from verify.chaos.faults.support.fault_base import FaultBase, Timing, ended, kill, zookeeper_hosts
from verify.chaos.faults.support.tools import quietly, run_aside
from verify.chaos.targets import sessions

_REFUSAL_MS = 20_000
_LOGGED_S, _LOOK_EVERY_S = 20.0, 0.05
#: The log line of a broker whose disk is full.
_FULL = r"is offline.*No space left"
#: The log line of a broker whose data directory is empty.
_GONE = r"logs are missing"


class LeaderDiskFull(BrokerFault):
    """The disk of a leader is full. The leader must give up its leadership, and return once there is space.

    The broker is restarted when the fault is healed, if it has ended.
    """

    row, name = "F50", "leader's disk full"
    needs = frozenset({Need.DISKS, Need.PROCESSES, Need.RESTARTS})
    lasts_ms = (2_000, 3_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._refusals: list[str] = []

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.silent_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = self.choose(await target.view(), rng)
        said = BrokerLogReader(target.broker_log(victim))
        self.will_restart(target, victim)

        async def listen() -> None:
            self._refusals = await asyncio.to_thread(said.lines, _FULL)

        self.on_heal(listen)
        await fill_disk(self, target, str(victim))
        return f"the disk of {victim_name} is full"

    choose = staticmethod(leader_of_one)

    def bit(self, evidence: Evidence) -> str | None:
        left = bite_detection.left_isr(evidence, self.victims)
        return f"{left}, saying that its disk is full" if left and self._refusals else None


class FollowerDiskFull(LeaderDiskFull):
    name = "follower's disk full"
    choose = staticmethod(follower_of_one)


class ZooKeeperDiskFull(FaultBase):
    """The disk of ZooKeeper is full. ZooKeeper ends, or is killed, and is started again once there is space."""

    row, name = "F50", "ZooKeeper's disk full"
    needs = frozenset({Need.DISKS, Need.ZOOKEEPER, Need.ZOOKEEPER_ACCESS})
    lasts_ms = (1_000, 2_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._ended = False

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.undisturbed_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        process, hosts = target.zookeeper_process(), zookeeper_hosts(target)
        self.on_heal(partial(self._restart, target))
        await fill_disk(self, target, "zookeeper")
        await asyncio.to_thread(sessions.write_until_refused, hosts)
        self._ended = await ended(process, 5_000)
        return "ZooKeeper's disk is full"

    async def _restart(self, target: Target) -> None:
        if (process := target.zookeeper_process()).running and not self._ended:
            await kill(process, "ZooKeeper")  # ZooKeeper refuses writes and has not noticed that there is space again
        await target.start_zookeeper()

    def bit(self, evidence: Evidence) -> str | None:
        return "ZooKeeper ended on its full disk" if self._ended else None


async def fill_disk(fault: FaultBase, target: Target, name: str) -> None:
    """Fill the disk of "zookeeper" or of a broker such as "1" until the fault is healed. The target must have
    `Need.DISKS`.
    """
    at = cast(Disks, target.prerequisite(Need.DISKS)).mount_point(name)
    removed = target.undo.to_remove(at / FILLER)

    async def free() -> None:
        await asyncio.to_thread((at / FILLER).unlink, missing_ok=True)
        removed()

    fault.on_heal(free)
    await asyncio.to_thread(fill, at)


# --- refused at the start --------------------------------------------------------------------------------------


class StartRefused(BrokerFault):
    """A broker that is killed, and restarted with a directory that it may not use. The broker must end within 20 s."""

    needs = frozenset({Need.PROCESSES, Need.RESTARTS, Need.FILES, Need.OWN})
    lasts_ms = (500, 1_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._refused = self._wrong = ""

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.refused_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        await self.kill(target, victim)
        await self.spoil(target, victim)
        said = BrokerLogReader(target.broker_log(victim))
        process = await target.launch_broker(victim)
        self.on_heal(partial(_end, target, victim))
        if await ended(process, _REFUSAL_MS):
            self._refused = await asyncio.to_thread(said.last)
        else:
            self._wrong = f"broker {victim} still ran after {_REFUSAL_MS / 1000:g} s"
        return f"{victim_name}, killed and started: {self.name}"

    async def spoil(self, target: Target, victim: int) -> None:
        """Make the directory of the broker `victim` unusable until the fault is healed. The broker is not running."""
        raise NotImplementedError

    def bit(self, evidence: Evidence) -> str | None:
        return f"the broker refused to start: {self._refused}" if self._refused else None

    def broken(self, evidence: Evidence) -> str | None:
        return self._wrong or None


class ReadOnly(StartRefused):
    row, name = "F53", "data directory read-only"
    needs = frozenset({Need.DISKS, Need.PROCESSES, Need.RESTARTS})

    async def spoil(self, target: Target, victim: int) -> None:
        at = str(cast(Disks, target.prerequisite(Need.DISKS)).mount_point(str(victim)))
        writable = ("mount", "-o", "remount,rw", at)
        put_back = target.undo.to_run(*quietly(*writable))

        async def make_writable() -> None:
            await run_aside(*writable)
            put_back()

        self.on_heal(make_writable)
        await run_aside("mount", "-o", "remount,ro", at)


class WrongMeta(StartRefused):
    row, name = "F53", "data directory of another broker"

    async def spoil(self, target: Target, victim: int) -> None:
        path = target.broker_dir(victim) / layout.META_PROPERTIES
        before = await asyncio.to_thread(path.read_text)
        self.on_heal(partial(asyncio.to_thread, path.write_text, before))
        other = re.sub(r"^broker\.id=\d+$", f"broker.id={victim + 100}", before, flags=re.MULTILINE)
        if other == before:
            raise LocalError(f"{path} names no broker")
        await asyncio.to_thread(path.write_text, other)


class Vanished(BrokerFault):
    """A leader is killed, and started without its data directory. The broker may start with empty logs, but must not
    lead before it has all records.

    Healing puts the old directory back with another boot id. That directory then lacks the newer records, as on a
    machine that was down.
    """

    row, name = "F53", "data directory vanished"
    needs = frozenset({Need.PROCESSES, Need.RESTARTS, Need.FILES, Need.OWN})
    lasts_ms = (3_000, 4_000)  # until the broker has started without its directory

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._said: BrokerLogReader | None = None
        self._missed: list[str] = []

    @property
    def availability(self) -> Availability:
        # The broker dies twice within one session, and is fenced once.
        return Availability(self.timing.silent_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        directory = target.broker_dir(victim)
        away = directory.with_name(f"{directory.name}-away")
        await self.kill(target, victim)
        self.on_heal(partial(asyncio.to_thread, _bring_back, away, directory))
        await asyncio.to_thread(directory.rename, away)
        self.on_heal(partial(_end, target, victim))
        self._said = BrokerLogReader(target.broker_log(victim))
        self.on_heal(self._listen)
        await target.launch_broker(victim)
        return f"{victim_name}, killed, and started without its data directory"

    async def _listen(self) -> None:
        """Wait up to 20 s until the broker has logged which logs are missing, because a busy machine may need longer
        than the fault lasts to start a broker.
        """
        if self._said is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOGGED_S):
                while not self._missed:
                    self._missed = await asyncio.to_thread(self._said.lines, _GONE)
                    await asyncio.sleep(_LOOK_EVERY_S)

    def bit(self, evidence: Evidence) -> str | None:
        return f"broker {self.victims[0]} logged: {self._missed[0]}" if self._missed else None


async def _end(target: Target, victim: int) -> None:
    """Kill the broker if it runs, so that its own directory can be restored."""
    if (process := target.broker_process(victim)).running:
        await kill(process, f"broker {victim}")


def _bring_back(away: Path, directory: Path) -> None:
    if away.exists():
        shutil.rmtree(directory, ignore_errors=True)
        away.rename(directory)
        layout.forget_boot(directory)

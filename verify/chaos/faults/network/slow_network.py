"""Implement F29, F30 and F39: networks that are slow, by delay or by bandwidth."""

from __future__ import annotations

import asyncio
import random
import re
import sys
from typing import cast

from tidelog.errors import LocalError
from tidelog.local.broker import broker_environment
from tidelog.local.processes.process import Process
from tidelog.local.processes.process_placement import ZOOKEEPER
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.network.network import NetworkFault
from verify.chaos.faults.support import bite_detection
from verify.chaos.faults.support.fault_base import Timing
from verify.chaos.faults.support.namespaces import Namespaces
from verify.chaos.faults.support.packets import Rule
from verify.chaos.faults.support.tools import quietly, run, run_aside

_QUEUE = 7
_DELAY_MS = (100, 500)
_READY_S = 10.0
_OVER_LIMITS = re.compile(r"overlimits (\d+)")


class Delayed(NetworkFault):
    """Packets from a leader that are delayed by 100 to 500 ms at random, so that they overtake each other. The
    leader's session must survive.
    """

    row, name = "F29", "packets delayed and reordered"

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.expired_ms, self.timing.expired_ms + 1_000

    @property
    def availability(self) -> Availability:
        # No broker is fenced, so no client waits for the end of a session.
        return Availability(self.timing.session_timeout_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = await self.choose_leader(target, rng)
        network = cast(Namespaces, target.prerequisite(Need.NETWORK))
        command = [sys.executable, "-P", "-m", "verify.chaos.faults.network.delaying", str(_QUEUE)]
        bounds = [*map(str, _DELAY_MS), str(rng.getrandbits(32))]
        output = target.directory / "delaying.out"
        helper = Process.spawn(
            [*network.inside(str(victim)), *command, *bounds], output=output, environment=broker_environment()
        )
        self.on_heal(lambda: asyncio.to_thread(helper.stop, 2_000))
        deadline = asyncio.get_running_loop().time() + _READY_S
        while "ready" not in (said := output.read_text(errors="replace")):
            if not helper.running or asyncio.get_running_loop().time() >= deadline:
                raise LocalError(f"cannot delay packets here: {' '.join(said.split())[-200:] or 'not ready in time'}")
            await asyncio.sleep(0.02)
        queued = ("NFQUEUE", "--queue-num", str(_QUEUE), "--queue-bypass")
        await self.install(target, [lambda network: Rule(str(victim), "OUTPUT", (), queued)])
        return f"packets of {victim_name}, are delayed by {_DELAY_MS[0]} to {_DELAY_MS[1]} ms"

    def bit(self, evidence: Evidence) -> str | None:
        slow = bite_detection.slowed(evidence, _DELAY_MS[0])
        return f"{slow}; {self.packets:,} packets delayed" if slow and self.packets else None

    def broken(self, evidence: Evidence) -> str | None:
        return bite_detection.registered_anew(evidence, self.victims)


class Narrow(NetworkFault):
    """A low bandwidth of one member in both directions, limited at its own end and at the switch; here of a leader."""

    row, name = "F30", "3 Mbit/s"
    rate = "3mbit"

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._held_back = 0

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.expired_ms, self.timing.expired_ms + 1_000

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.lagging_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = await self.choose_leader(target, rng)
        await self.narrow(target, str(victim))
        return f"{self.rate[:-4]} Mbit/s to and from {victim_name}"

    async def narrow(self, target: Target, member: str) -> None:
        network = cast(Namespaces, target.prerequisite(Need.NETWORK))
        ends = [(network.inside(member), "eth0"), (network.inside("switch"), network.port(member))]
        for inside, device in ends:
            await self._narrow(target, inside, device)

    async def _narrow(self, target: Target, inside: tuple[str, ...], device: str) -> None:
        removal = (*inside, "tc", "qdisc", "del", "dev", device, "root")
        put_back = target.undo.to_run(*quietly(*removal))

        async def widen() -> None:
            shown = await asyncio.to_thread(_shown, inside, device)
            self._held_back += sum(map(int, _OVER_LIMITS.findall(shown)))
            await run_aside(*quietly(*removal))
            put_back()

        self.on_heal(widen)
        limits = ("rate", self.rate, "burst", "1600", "latency", "2s")
        await run_aside(*inside, "tc", "qdisc", "add", "dev", device, "root", "tbf", *limits)

    def bit(self, evidence: Evidence) -> str | None:
        return f"packets had to wait {self._held_back:,} times" if self._held_back else None


class ZooKeeperNarrow(Narrow):
    """ZooKeeper with 64 kbit/s in both directions. Its answers are late, but sessions must survive."""

    row, name = "F39", "ZooKeeper slow"
    rate = "64kbit"

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.undisturbed_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        await self.narrow(target, ZOOKEEPER)
        return "64 kbit/s to and from ZooKeeper"

    def broken(self, evidence: Evidence) -> str | None:
        return bite_detection.registered_anew(evidence)


def _shown(inside: tuple[str, ...], device: str) -> str:
    try:
        return run(*inside, "tc", "-s", "qdisc", "show", "dev", device)
    except LocalError:
        return ""

"""F35–F38: sessions that end, and a ZooKeeper that is killed or paused."""

from __future__ import annotations

import asyncio
import random
from signal import SIGCONT, SIGSTOP

from tidelog.chaos import sessions
from tidelog.chaos.fault import Availability, Evidence, Need, Target
from tidelog.chaos.faults import signs
from tidelog.chaos.faults.harm import Harm, Timing, kill, send
from tidelog.chaos.faults.processes import leader_of_one
from tidelog.errors import LocalError


def registration(broker: int) -> str:
    """Where a broker is registered while its session lasts."""
    return f"/brokers/ids/{broker}"


# --- sessions --------------------------------------------------------------------------------------------------


class SessionExpired(Harm):
    """Of a leader that is well: it registers anew, and what it led another leads."""

    row, name = "F35", "leader's session expired"
    needs = frozenset({Need.ZOOKEEPER_ACCESS})

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self.victims: tuple[int, ...] = ()

    @property
    def availability(self) -> Availability:
        # Nobody has to find out that a session ended: a second for the election, and one for the clients.
        return Availability(2_000)

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = leader_of_one(await target.view(), dice)
        await self.expire(target, victim)
        return f"the session of {who} ended"

    async def expire(self, target: Target, victim: int) -> None:
        if target.zookeeper_hosts is None:
            raise LocalError("ZooKeeper cannot be reached from here")
        self.victims = tuple({*self.victims, victim})
        await asyncio.to_thread(sessions.expire, target.zookeeper_hosts, registration(victim))

    def bit(self, evidence: Evidence) -> str | None:
        return signs.registered_anew(evidence, self.victims)


class SessionsExpireOften(SessionExpired):
    """Somebody may be in the middle of following what fell to another a moment ago (KAFKA-9307)."""

    row, name = "F36", "sessions expire again and again"
    lasts_ms = (8_000, 10_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self.times = 0

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.refused_ms)

    async def inject(self, target: Target, dice: random.Random) -> str:
        self.meanwhile(self._again_and_again(target, dice))
        return "sessions of brokers ended every 0.5–3 s"

    async def _again_and_again(self, target: Target, dice: random.Random) -> None:
        while True:
            try:
                await self.expire(target, dice.choice(target.broker_ids))
                self.times += 1
            except LocalError:
                pass  # it is not registered again yet
            await asyncio.sleep(dice.uniform(0.5, 3.0))

    def bit(self, evidence: Evidence) -> str | None:
        return f"{self.times} sessions ended" if self.times > 2 and super().bit(evidence) else None


# --- away ------------------------------------------------------------------------------------------------------


class ZooKeeperKilled(Harm):
    """Leaders go on with the ISR that they have; whatever needs another one waits."""

    row, name = "F37", "ZooKeeper killed"
    needs = frozenset({Need.ZOOKEEPER})
    lasts_ms = (10_000, 10_500)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._killed = False

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.undisturbed_ms)

    async def inject(self, target: Target, dice: random.Random) -> str:
        self.mend(target.start_zookeeper)
        await kill(target.zookeeper_process(), "ZooKeeper")
        self._killed = True
        return "SIGKILL to ZooKeeper"

    def bit(self, evidence: Evidence) -> str | None:
        if not self._killed:
            return None
        seconds = (evidence.healed - evidence.injected) / 1e9
        seen = [view for view in evidence.views[1:] if evidence.injected < view.t < evidence.healed - 1_000_000_000]
        return None if seen else f"ZooKeeper answered nobody for {seconds:.1f} s"


class ZooKeeperRestarted(ZooKeeperKilled):
    name = "ZooKeeper killed and restarted at once"
    lasts_ms = (0, 500)

    def bit(self, evidence: Evidence) -> str | None:
        return "ZooKeeper's process ended" if self._killed else None


class ZooKeeperAwayForLong(ZooKeeperKilled):
    name = "ZooKeeper killed for a minute"
    lasts_ms = (60_000, 60_000)


class ZooKeeperPaused(Harm):
    """When it wakes up, the time of all sessions is over."""

    row, name = "F38", "ZooKeeper paused for two sessions"
    needs = frozenset({Need.ZOOKEEPER})

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._paused = False

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return 2 * self.timing.session_timeout_ms, 2 * self.timing.session_timeout_ms + 500

    @property
    def availability(self) -> Availability:
        # From when it wakes up: what has expired registers anew, and is elected.
        return Availability(self.timing.silent_ms)

    async def inject(self, target: Target, dice: random.Random) -> str:
        process = target.zookeeper_process()
        went_on = target.undo.to_continue(process)

        async def go_on() -> None:
            process.signal(SIGCONT)
            went_on()

        self.mend(go_on)
        send(process, SIGSTOP, "ZooKeeper")
        self._paused = True
        return "SIGSTOP to ZooKeeper"

    def bit(self, evidence: Evidence) -> str | None:
        anew = signs.registered_anew(evidence)
        if anew or not self._paused:
            return anew
        quiet = not any(evidence.injected + 3_000_000_000 < view.t < evidence.healed for view in evidence.views)
        seconds = (evidence.healed - evidence.injected) / 1e9
        return f"ZooKeeper answered nobody for {seconds:.1f} s" if quiet else None

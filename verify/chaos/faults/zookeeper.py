"""Implement F35–F38: sessions that end, and a ZooKeeper that is killed or paused."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from functools import partial
from signal import SIGCONT, SIGSTOP

from tidelog.errors import LocalError, TidelogError
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.processes import leader_of_one, led_by
from verify.chaos.faults.support import bite_detection, recovery_bounds
from verify.chaos.faults.support.fault_base import FaultBase, Timing, kill, send, zookeeper_hosts
from verify.chaos.targets import sessions

_LOOK_EVERY_S = 0.1
#: Time limits: from the expiry of a session until others lead, and from ZooKeeper's return until brokers are connected.
_LED_AGAIN_MS, _RECONNECTED_MS = 1_000, 2_000


def registration(broker: int) -> str:
    """Return the path of the znode of a broker's registration."""
    return f"/brokers/ids/{broker}"


# --- sessions --------------------------------------------------------------------------------------------------


class SessionExpired(FaultBase):
    """The session of a healthy leader expires. The broker must register again, and the partitions that it led must have
    a leader of a later epoch within a second.
    """

    row, name = "F35", "leader's session expired"
    needs = frozenset({Need.ZOOKEEPER_ACCESS})

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self.victims: tuple[int, ...] = ()
        self._ended_at = 0

    @property
    def availability(self) -> Availability:
        # The controller learns of the end of a session at once: a second for the election, and one for the clients.
        return Availability(2_000)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        await self.expire(target, victim)
        self._ended_at = time.monotonic_ns()
        return f"the session of {victim_name} ended"

    async def expire(self, target: Target, victim: int) -> None:
        hosts = zookeeper_hosts(target)
        self.victims = tuple({*self.victims, victim})
        await asyncio.to_thread(sessions.expire, hosts, registration(victim))

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.registered_anew(evidence, self.victims)

    def broken(self, evidence: Evidence) -> str | None:
        led = led_by(evidence.before, self.victims)
        return recovery_bounds.led_late(evidence, led, self._ended_at, _LED_AGAIN_MS) if self._ended_at else None


class SessionsExpireOften(SessionExpired):
    """Sessions of random brokers expire every 0.5–2 s. A broker may still be becoming the follower of a leader that has
    just lost its session (KAFKA-9307).
    """

    row, name = "F36", "sessions expire again and again"
    lasts_ms = (8_000, 10_000)

    #: The number of new registrations that the run must observe at least.
    least_times = 3

    @property
    def availability(self) -> Availability:
        # Two of three replicas may be out of an ISR at the same time.
        return Availability(self.timing.refused_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        self.meanwhile(self._again_and_again(target, rng))
        return "sessions of brokers ended every 0.5–2 s"

    async def _again_and_again(self, target: Target, rng: random.Random) -> None:
        while True:
            with suppress(LocalError):  # the broker may not be registered yet
                await self.expire(target, rng.choice(target.broker_ids))
            await asyncio.sleep(rng.uniform(0.5, 2.0))

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.registrations(evidence, self.least_times)


# --- away ------------------------------------------------------------------------------------------------------


class ZooKeeperAway(FaultBase):
    """ZooKeeper is unavailable. Leaders must continue with their current ISR; changes of state wait."""

    needs = frozenset({Need.ZOOKEEPER})

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._silent_s = 0.0

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.undisturbed_ms)

    async def look(self, target: Target) -> None:
        """Query ZooKeeper repeatedly until cancelled, and note the longest time from an answer to a failed query."""
        loop = asyncio.get_running_loop()
        answered = loop.time()
        while True:
            try:
                await target.view()
                answered = loop.time()
            except TidelogError:
                self._silent_s = max(self._silent_s, loop.time() - answered)
            await asyncio.sleep(_LOOK_EVERY_S)

    def bit(self, evidence: Evidence) -> str | None:
        return f"ZooKeeper answered no request for {self._silent_s:.1f} s" if self._silent_s else None


class ZooKeeperKilled(ZooKeeperAway):
    row, name = "F37", "ZooKeeper killed"
    lasts_ms = (8_000, 8_500)  # and two seconds until ZooKeeper serves again

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._serves_since = 0

    async def inject(self, target: Target, rng: random.Random) -> str:
        # The observation goes on until ZooKeeper serves again.
        self.meanwhile(self.look(target))
        self.on_heal(partial(self._start, target))
        await kill(target.zookeeper_process(), "ZooKeeper")
        return "SIGKILL to ZooKeeper"

    async def _start(self, target: Target) -> None:
        await target.start_zookeeper()
        self._serves_since = time.monotonic_ns()

    def broken(self, evidence: Evidence) -> str | None:
        return (
            recovery_bounds.reconnected_late(evidence, self._serves_since, _RECONNECTED_MS)
            if self._serves_since
            else None
        )


class ZooKeeperRestarted(ZooKeeperKilled):
    name = "ZooKeeper killed and restarted at once"
    lasts_ms = (0, 500)


class ZooKeeperAwayForLong(ZooKeeperKilled):
    name = "ZooKeeper killed for a minute"
    lasts_ms = (60_000, 60_000)


class ZooKeeperPaused(ZooKeeperAway):
    """ZooKeeper is paused for twice the session timeout, so that all sessions have timed out when it continues."""

    row, name = "F38", "ZooKeeper paused for two sessions"

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return 2 * self.timing.session_timeout_ms, 2 * self.timing.session_timeout_ms + 500

    @property
    def availability(self) -> Availability:
        # Counted from the return of ZooKeeper: expired brokers register again, and leaders are elected.
        return Availability(self.timing.silent_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        process = target.zookeeper_process()
        mark_continued = target.undo.to_continue(process)

        async def go_on() -> None:
            process.signal(SIGCONT)
            mark_continued()

        self.meanwhile(self.look(target))
        self.on_heal(go_on)
        send(process, SIGSTOP, "ZooKeeper")
        return "SIGSTOP to ZooKeeper"

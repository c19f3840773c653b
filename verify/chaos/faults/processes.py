"""Implement F1–F14: brokers that are killed, paused, shut down, and killed again while they start."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from tidelog.errors import LocalError
from tidelog.local.processes.process import Process
from tidelog.model import TopicPartition
from verify.chaos.fault import Availability, Evidence, Need, Target, View
from verify.chaos.faults.support import bite_detection
from verify.chaos.faults.support.fault_base import (
    UNAVAILABLE,
    FaultBase,
    Timing,
    ended,
    kill,
    leaders,
    look_until,
    of,
    send,
)
from verify.chaos.faults.support.layout import CLEAN_SHUTDOWN

#: The longest time that a controlled shutdown may take, whatever the cluster answers.
_POLITE_MS = 10_000
_WHOLE_S = 60.0


class BrokerFault(FaultBase):
    """A fault that hits brokers, for example ends or pauses them. Healing makes the ended and paused brokers run
    again.
    """

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        #: The brokers that the fault hit.
        self.victims: tuple[int, ...] = ()

    def will_restart(self, target: Target, *brokers: int) -> None:
        """Add these brokers to the victims, and register their start for `heal`. The call must come before they are
        stopped.
        """
        self.victims = tuple(dict.fromkeys((*self.victims, *brokers)))
        for broker in brokers:
            self.on_heal(partial(target.start_broker, broker))

    async def kill(self, target: Target, *brokers: int) -> None:
        """Send SIGKILL to all these brokers at once, and wait until they have ended. Healing restarts them.

        Raise LocalError if a broker is not running or does not end within 20 s.
        """
        self.will_restart(target, *brokers)
        processes = [target.broker_process(broker) for broker in brokers]
        for broker, process in zip(brokers, processes, strict=True):
            send(process, SIGKILL, f"broker {broker}")
        for broker, process in zip(brokers, processes, strict=True):
            if not await ended(process):
                raise LocalError(f"broker {broker} did not end after SIGKILL")

    def pause(self, target: Target, *brokers: int) -> None:
        """Send SIGSTOP to these brokers, the last one first. When the fault is healed, they continue in the given
        order.

        Raise LocalError if a broker is not running.
        """
        self.victims = tuple(dict.fromkeys((*self.victims, *brokers)))
        for broker in reversed(brokers):
            process = target.broker_process(broker)
            mark_continued = target.undo.to_continue(process)
            self.on_heal(partial(_resume, process, mark_continued))
            send(process, SIGSTOP, f"broker {broker}")


def led_by(view: View, brokers: Collection[int]) -> list[TopicPartition]:
    """Return the partitions that one of these brokers leads, in order."""
    return [tp for tp, leader in leaders(view).items() if leader in brokers]


async def _resume(process: Process, mark_continued: Callable[[], None]) -> None:
    process.signal(SIGCONT)
    mark_continued()


def leader_of_one(view: View, rng: random.Random) -> tuple[int, str]:
    """Return the leader of a random partition, and its description with that partition. Raise LocalError if no
    partition has a leader.
    """
    led = leaders(view)
    if not led:
        raise LocalError("no partition has a leader")
    tp = rng.choice(list(led))
    return led[tp], f"broker {led[tp]}, leader of {of(tp)}"


def follower_of_one(view: View, rng: random.Random) -> tuple[int, str]:
    """Return a random broker that follows a partition in sync, and its description. Prefer brokers other than the
    controller.

    Raise LocalError if no partition has a follower in sync.
    """
    following = [
        (broker, tp)
        for tp, state in sorted(view.partitions.items())
        for broker in state.isr
        if broker != state.leader >= 0
    ]
    if not following:
        raise LocalError("no partition has a follower in sync")
    calm = [(broker, tp) for broker, tp in following if broker != view.controller]
    broker, tp = rng.choice(calm or following)
    return broker, f"broker {broker}, follower of {of(tp)}"


# --- killed ----------------------------------------------------------------------------------------------------


class LeaderKilled(BrokerFault):
    """A leader is killed. Refused connections make the controller suspect it; if connecting is not refused, the session
    timeout decides.
    """

    row, name = "F1", "leader killed"

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.refused_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        await self.kill(target, victim)
        return f"SIGKILL to {victim_name}"

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.leaders_changed(evidence, led_by(evidence.before, self.victims))


class FollowerKilled(BrokerFault):
    row, name = "F2", "follower killed"

    @property
    def availability(self) -> Availability:
        # The broker usually leads other partitions, whose clients wait for an election.
        return Availability(self.timing.refused_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = follower_of_one(await target.view(), rng)
        await self.kill(target, victim)
        return f"SIGKILL to {victim_name}"

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.left_isr(evidence, self.victims)


class TwoKilled(BrokerFault):
    """Two random brokers are killed at once. In a cluster of three, fewer than min.insync.replicas remain, so nothing
    may be acknowledged with acks=all.
    """

    row, name = "F3", "two brokers killed"
    availability = UNAVAILABLE

    async def inject(self, target: Target, rng: random.Random) -> str:
        victims = rng.sample(target.broker_ids, 2)
        await self.kill(target, *victims)
        return f"SIGKILL to brokers {victims[0]} and {victims[1]}"

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.all_registered_anew(evidence, self.victims)


class AllKilled(BrokerFault):
    """All brokers are killed at once, and restarted one after another in random order."""

    row, name = "F4", "all brokers killed"
    availability = UNAVAILABLE
    lasts_ms = (500, 1_500)

    async def inject(self, target: Target, rng: random.Random) -> str:
        order = rng.sample(target.broker_ids, len(target.broker_ids))
        await self.kill(target, *order)
        return "SIGKILL to all brokers"

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.all_registered_anew(evidence, self.victims)


class AllKilledInTurn(AllKilled):
    """All brokers are killed one after another. The first one returns first, but must not lead before the last one has
    returned.
    """

    name = "all brokers killed in turn"

    async def inject(self, target: Target, rng: random.Random) -> str:
        order = rng.sample(target.broker_ids, len(target.broker_ids))
        self.will_restart(target, *reversed(order))  # the heal steps run last first
        for broker in order:
            await kill(target.broker_process(broker), f"broker {broker}")
            await asyncio.sleep(rng.uniform(0, 1))
        return f"SIGKILL to brokers {', '.join(map(str, order))}, in this order"


class ControllerKilled(BrokerFault):
    row, name = "F5", "controller killed"

    @property
    def availability(self) -> Availability:
        # The controller may lead partitions, which have to wait for the next controller.
        return Availability(self.timing.refused_ms + 1_000)

    async def inject(self, target: Target, rng: random.Random) -> str:
        view = await target.view()
        if view.controller < 0:
            raise LocalError("there is no controller")
        await self.kill(target, view.controller)
        return f"SIGKILL to broker {view.controller}, the controller"

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.controller_changed(evidence)


class LeadingControllerKilled(ControllerKilled):
    row, name = "F6", "controller killed that leads"

    async def inject(self, target: Target, rng: random.Random) -> str:
        view = await target.view()
        led = [of(tp) for tp, leader in leaders(view).items() if leader == view.controller]
        if not led:
            raise LocalError("the controller leads no partition of the load")
        return f"{await super().inject(target, rng)} and leader of {rng.choice(led)}"

    def bit(self, evidence: Evidence) -> str | None:
        controller, leader = bite_detection.controller_changed(evidence), bite_detection.leaders_changed(evidence)
        return f"{controller}, {leader}" if controller and leader else None


# --- paused ----------------------------------------------------------------------------------------------------


class Zombie(BrokerFault):
    """A leader that is paused for longer than its session, so that another leader is elected, and then continues."""

    row, name = "F7", "leader paused for longer than its session"
    needs = frozenset({Need.PROCESSES})

    @property
    def lasts_ms(self) -> tuple[int, int]:
        # The pause lasts until another leader acknowledges records that the paused one does not have.
        return self.timing.expired_ms + 500, self.timing.expired_ms + 2_000

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.silent_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        await asyncio.sleep(rng.uniform(0, 0.2))  # pause it at a random point of its work
        self.pause(target, victim)
        return f"SIGSTOP to {victim_name}"

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.leaders_changed(evidence, led_by(evidence.before, self.victims))


class LeaderDozes(Zombie):
    """A leader that is paused for a third to a half of the session timeout, as by a long garbage collection. Its
    session must survive.
    """

    row, name = "F8", "leader paused for less than its session"

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.session_timeout_ms // 3, self.timing.session_timeout_ms // 2

    @property
    def availability(self) -> Availability:
        # No replica leaves an ISR so soon, so acks=all waits for it on every partition.
        return Availability(self.lasts_ms[1] + self.timing.undisturbed_ms, leaves_majority=False)

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.paused(evidence, 0.7 * (evidence.healed - evidence.injected) / 1e6)

    def broken(self, evidence: Evidence) -> str | None:
        return bite_detection.registered_anew(evidence, self.victims)


class FollowerDozes(BrokerFault):
    """A follower that is paused until it leaves the ISR, because of its lag or of the end of its session."""

    row, name = "F9", "follower paused until it leaves the ISR"
    needs = frozenset({Need.PROCESSES})

    @property
    def lasts_ms(self) -> tuple[int, int]:
        soonest = min(self.timing.shrunk_ms, self.timing.expired_ms)
        return soonest + 500, soonest + 1_500

    @property
    def availability(self) -> Availability:
        # The broker usually leads other partitions. The partitions that it follows need no longer wait than those.
        return Availability(self.timing.silent_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = follower_of_one(await target.view(), rng)
        self.pause(target, victim)
        return f"SIGSTOP to {victim_name}"

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.left_isr(evidence, self.victims)


class AllDoze(BrokerFault):
    row, name = "F10", "all brokers paused"
    needs = frozenset({Need.PROCESSES})
    availability = UNAVAILABLE

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.session_timeout_ms // 2, self.timing.expired_ms + 500

    async def inject(self, target: Target, rng: random.Random) -> str:
        order = rng.sample(target.broker_ids, len(target.broker_ids))
        self.pause(target, *order)
        return f"SIGSTOP to all brokers, SIGCONT in the order {', '.join(map(str, order))}"

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.paused(evidence, 0.7 * (evidence.healed - evidence.injected) / 1e6)


# --- stopped politely ------------------------------------------------------------------------------------------


class PoliteStop(BrokerFault):
    """A controlled shutdown of a leader. Leadership moves before the listeners close. The broker must end within 10 s
    and leave its marker of a clean shutdown.
    """

    row, name = "F11", "leader stopped politely"
    needs = frozenset({Need.PROCESSES, Need.RESTARTS, Need.FILES})
    #: Clients of an idle machine notice at most half a second; here two cores are busy.
    availability = Availability(1_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._took_ms = 0.0
        self._marked = False

    async def stop(self, target: Target, victim: int) -> None:
        """Send SIGTERM and wait for the end of the process; after 20 s kill it. Note how long that took, and whether
        the broker has left its marker of a clean shutdown.
        """
        process = target.broker_process(victim)
        began = asyncio.get_running_loop().time()
        send(process, SIGTERM, f"broker {victim}")
        if not await ended(process, 2 * _POLITE_MS):
            await kill(process, f"broker {victim}")
        self._took_ms = 1000 * (asyncio.get_running_loop().time() - began)
        self._marked = clean_marker(target.broker_dir(victim)).exists()

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        self.will_restart(target, victim)
        await self.stop(target, victim)
        return f"SIGTERM to {victim_name}"

    def bit(self, evidence: Evidence) -> str | None:
        moved = bite_detection.leaders_changed(evidence)
        return f"{moved}; the broker ended after {self._took_ms / 1000:.1f} s" if moved and self._took_ms else None

    def broken(self, evidence: Evidence) -> str | None:
        if self._took_ms > _POLITE_MS:
            return f"the broker ended {self._took_ms / 1000:.1f} s after SIGTERM; the limit is {_POLITE_MS / 1000:g} s"
        return "the broker left no marker of a clean shutdown" if self._took_ms and not self._marked else None


class PoliteStopAlone(PoliteStop):
    """A leader's controlled shutdown while ZooKeeper is killed, so that no controller can move its leadership.

    The broker must end nevertheless, and leave its marker.
    """

    row, name = "F12", "polite stop while ZooKeeper is away"
    needs = frozenset({Need.PROCESSES, Need.RESTARTS, Need.FILES, Need.ZOOKEEPER})
    availability = UNAVAILABLE

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        self.will_restart(target, victim)  # its restart comes after that of ZooKeeper
        self.on_heal(target.start_zookeeper)
        await kill(target.zookeeper_process(), "ZooKeeper")
        await self.stop(target, victim)
        return f"SIGKILL to ZooKeeper, SIGTERM to {victim_name}"

    def bit(self, evidence: Evidence) -> str | None:
        return f"the broker ended after {self._took_ms / 1000:.1f} s" if self._took_ms else None


class PoliteStopUncontrolled(PoliteStopAlone):
    name = "polite stop while the controller is paused"
    needs = frozenset({Need.PROCESSES, Need.RESTARTS, Need.FILES})

    async def inject(self, target: Target, rng: random.Random) -> str:
        view = await target.view()
        others = [broker for broker in target.broker_ids if broker != view.controller]
        if view.controller < 0 or not others:
            raise LocalError("there is no controller on another broker")
        victim = rng.choice(others)
        self.will_restart(target, victim)
        self.pause(target, view.controller)
        await self.stop(target, victim)
        return f"SIGSTOP to broker {view.controller}, the controller, SIGTERM to broker {victim}"


# --- again and again -------------------------------------------------------------------------------------------


class RollingRestart(BrokerFault):
    """Five restarts of the current leader of one partition, each as soon as all ISRs are as large as before the fault.

    The leader is ended, and started again once another broker leads the partition.
    """

    row, name = "F13", "rolling restart that follows the leader"
    times = 5
    lasts_ms = (0, 500)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._followed: TopicPartition | None = None

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.refused_ms)

    async def end(self, target: Target, victim: int) -> None:
        process = target.broker_process(victim)
        send(process, SIGTERM, f"broker {victim}")
        if not await ended(process, 2 * _POLITE_MS):
            raise LocalError(f"broker {victim} did not end within {2 * _POLITE_MS / 1000:g} s of SIGTERM")

    async def inject(self, target: Target, rng: random.Random) -> str:
        before = await target.view()
        led = leaders(before)
        if not led:
            raise LocalError("no partition has a leader")
        tp = rng.choice(list(led))
        full = {each: len(state.isr) for each, state in before.partitions.items()}
        self._followed, done = tp, list[int]()
        for _ in range(self.times):
            view = await look_until(
                target,
                "all replicas in sync",
                lambda view: (
                    all(len(view.partitions[each].isr) >= most for each, most in full.items())
                    and view.partitions[tp].leader >= 0
                ),
                _WHOLE_S,
            )
            victim = view.partitions[tp].leader
            self.will_restart(target, victim)
            await self.end(target, victim)
            await look_until(target, f"another leader of {of(tp)}", partial(_led_by_another, tp, victim), _WHOLE_S)
            await target.start_broker(victim)
            done.append(victim)
        return f"{self.name}: brokers {', '.join(map(str, done))}, each when it led {of(tp)}"

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.leaders_changed(evidence, [self._followed], times=self.times) if self._followed else None


class RollingKill(RollingRestart):
    name = "rolling SIGKILL that follows the leader"

    async def end(self, target: Target, victim: int) -> None:
        await kill(target.broker_process(victim), f"broker {victim}")


class CrashLoop(BrokerFault):
    """A leader that is killed, and killed again 0.2–3 s after each start: in its recovery, in its truncation, in its
    first fetch.
    """

    row, name = "F14", "broker killed while it starts, time and again"
    lasts_ms = (6_000, 8_000)  # long enough for at least three starts

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._lives = 0

    @property
    def availability(self) -> Availability:
        # The broker is fenced once per session, and dies several times.
        return Availability(self.timing.silent_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        await self.kill(target, victim)
        self.meanwhile(self._loop(target, victim, rng))
        return f"SIGKILL to {victim_name}, and 0.2–3 s after each start"

    async def _loop(self, target: Target, victim: int, rng: random.Random) -> None:
        while True:
            process = await target.launch_broker(victim)
            await asyncio.sleep(rng.uniform(0.2, 3.0))
            await kill(process, f"broker {victim}")
            self._lives += 1

    def bit(self, evidence: Evidence) -> str | None:
        return f"killed {self._lives} times while it started" if self._lives > 1 else None


def _led_by_another(tp: TopicPartition, victim: int, view: View) -> bool:
    return view.partitions[tp].leader not in (victim, -1)


def clean_marker(broker_dir: Path) -> Path:
    """Return the path of the marker that a broker leaves after a clean shutdown. The file need not exist."""
    return broker_dir / CLEAN_SHUTDOWN

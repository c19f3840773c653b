"""F19–F28 and F31: members of the cluster that cannot reach each other, one way or both, wholly or by chance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import cast

from tidelog.local.processes.process_placement import ZOOKEEPER
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.processes import BrokerFault, leader_of_one
from verify.chaos.faults.support import bite_detection, recovery_bounds
from verify.chaos.faults.support.fault_base import UNAVAILABLE, Timing, kill
from verify.chaos.faults.support.namespaces import CLIENTS, Namespaces
from verify.chaos.faults.support.packets import Installed, Rule, one_way

Made = Callable[[Namespaces], Rule]

#: Of one partition, where two brokers cannot reach each other: leadership is no ball.
_MOST_ELECTIONS_A_MINUTE = 3
#: Of one partition, where packets are lost: an ISR changes no more often.
_ISR_CHANGE_MS = 5_000


class NetworkFault(BrokerFault):
    """Its rules are removed when it is healed; it has bitten where they met packets."""

    needs = frozenset({Need.NETWORK})

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._rules: list[Installed] = []

    async def aim(self, target: Target, dice: random.Random) -> tuple[int, str]:
        """At a leader, and what to call it."""
        victim, who = leader_of_one(await target.view(), dice)
        self.victims = (victim,)
        return victim, who

    def prepare(self, target: Target, rules: Iterable[Made]) -> list[Installed]:
        """Not in force yet. What goes on `meanwhile` and installs and removes them begins later, so it ends earlier."""
        network = cast(Namespaces, target.furnishing(Need.NETWORK))
        made = [Installed(network, rule(network)) for rule in rules]
        for rule in made:
            self._rules.append(rule)
            self.mend(rule.remove)
        return made

    async def install(self, target: Target, rules: Iterable[Made]) -> list[Installed]:
        made = self.prepare(target, rules)
        for rule in made:
            await rule.install(target.undo)
        return made

    @property
    def packets(self) -> int:
        return sum(rule.packets for rule in self._rules)

    def counted(self, sign: str | None) -> str | None:
        """A sign together with the packets that did not come through; None where one of them is not there."""
        return f"{sign}; {self.packets:,} packets dropped" if sign and self.packets else None


def both_ways(one: str, other: str) -> list[Made]:
    """Nothing comes through between two members."""
    return [one_way(one, other), one_way(other, one)]


# --- a leader cut off ------------------------------------------------------------------------------------------


class LeaderCutFromFollowers(NetworkFault):
    """It shrinks the ISR to itself, and acknowledges nothing; others shrink theirs to two, and go on."""

    row, name = "F19", "leader cut off from its followers"

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.shrunk_ms + 500, self.timing.shrunk_ms + 1_500

    @property
    def availability(self) -> Availability:
        return Availability(self.lasts_ms[1] + self.timing.reconnected_ms)

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = await self.aim(target, dice)
        await self.install(target, [rule for each in self.far(target, victim) for rule in self.cut(str(victim), each)])
        return self.told(who, self.named(target, victim))

    def far(self, target: Target, victim: int) -> list[str]:
        """Whom the victim cannot reach."""
        return [str(each) for each in target.broker_ids if each != victim]

    def named(self, target: Target, victim: int) -> str:
        return "brokers " + " and ".join(self.far(target, victim))

    def cut(self, victim: str, other: str) -> list[Made]:
        """What does not come through between the two."""
        return both_ways(victim, other)

    def told(self, who: str, others: str) -> str:
        return f"{who}, cut off from {others}"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(bite_detection.left_isr(evidence) or bite_detection.leaders_changed(evidence))


class LeaderUnheard(LeaderCutFromFollowers):
    """It hears its followers, and they do not hear it."""

    row, name = "F22", "leader not heard by its followers"

    def cut(self, victim: str, other: str) -> list[Made]:
        return [one_way(victim, other)]

    def told(self, who: str, others: str) -> str:
        return f"{who}: nothing from it to {others}"


class LeaderDeaf(LeaderCutFromFollowers):
    """They hear it, and it does not hear them."""

    row, name = "F22", "leader that does not hear its followers"

    def cut(self, victim: str, other: str) -> list[Made]:
        return [one_way(other, victim)]

    def told(self, who: str, others: str) -> str:
        return f"{who}: nothing to it from {others}"


class LeaderCutFromZooKeeper(LeaderCutFromFollowers):
    row, name = "F20", "leader cut off from ZooKeeper"

    @property
    def lasts_ms(self) -> tuple[int, int]:
        # Until another one leads, and acknowledges what the old one must not deny.
        return self.timing.expired_ms + 1_000, self.timing.expired_ms + 2_000

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.silent_ms)

    def far(self, target: Target, victim: int) -> list[str]:
        return [ZOOKEEPER]

    def named(self, target: Target, victim: int) -> str:
        return "ZooKeeper"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(bite_detection.registered_anew(evidence, self.victims))


class LeaderCutFromAllButClients(LeaderCutFromZooKeeper):
    """The classic split brain: old clients still talk to it."""

    row, name = "F21", "leader cut off from all but its clients"

    def far(self, target: Target, victim: int) -> list[str]:
        return [*LeaderCutFromFollowers.far(self, target, victim), ZOOKEEPER]

    def named(self, target: Target, victim: int) -> str:
        return "ZooKeeper and all other brokers"


# --- others ----------------------------------------------------------------------------------------------------


class PairCut(NetworkFault):
    """Two brokers cannot reach each other, and a third reaches both."""

    row, name = "F23", "two brokers cut off from each other"

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.shrunk_ms + 500, self.timing.shrunk_ms + 1_500

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.lagging_ms)

    async def inject(self, target: Target, dice: random.Random) -> str:
        one, other = self.victims = tuple(sorted(dice.sample(target.broker_ids, 2)))
        await self.install(target, both_ways(str(one), str(other)))
        return f"brokers {one} and {other} cut off from each other"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(bite_detection.left_isr(evidence) or bite_detection.leaders_changed(evidence))

    def broken(self, evidence: Evidence) -> str | None:
        return recovery_bounds.elected_often(evidence, _MOST_ELECTIONS_A_MINUTE)


class ClientsCutFromLeader(NetworkFault):
    """The cluster has no part in it: clients wait, and find the same leader again."""

    row, name = "F24", "clients cut off from a leader"
    lasts_ms = (2_000, 4_000)

    @property
    def availability(self) -> Availability:
        return Availability(self.lasts_ms[1] + self.timing.reconnected_ms)

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = await self.aim(target, dice)
        await self.install(target, self.cut(str(victim)))
        return self.told(who)

    def cut(self, victim: str) -> list[Made]:
        return both_ways(CLIENTS, victim)

    def told(self, who: str) -> str:
        return f"all clients cut off from {who}"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(bite_detection.paused(evidence, 1_000))

    def broken(self, evidence: Evidence) -> str | None:
        return bite_detection.registered_anew(evidence, self.victims)


class AnswersLost(ClientsCutFromLeader):
    """Requests arrive and are carried out; what is longer than a heartbeat or an empty packet does not come back."""

    row, name = "F26", "answers of a leader lost"

    def cut(self, victim: str) -> list[Made]:
        return [one_way(victim, CLIENTS, "-p", "tcp", "-m", "length", "--length", "69:65535")]

    def told(self, who: str) -> str:
        return f"packets of more than 68 bytes from {who}, to clients are lost"


class IsolationAndKill(NetworkFault):
    """One broker is alone, one of the others is killed; the first is back, and another is alone."""

    row, name = "F25", "one broker isolated, another killed, then another isolated"
    needs = frozenset({Need.NETWORK, Need.PROCESSES, Need.RESTARTS})
    availability = UNAVAILABLE
    lasts_ms = (2_500, 3_500)

    async def inject(self, target: Target, dice: random.Random) -> str:
        first, killed, *rest = dice.sample(target.broker_ids, len(target.broker_ids))
        second = rest[0] if rest else killed
        rules = await self.install(target, self._alone(target, first))
        await asyncio.sleep(dice.uniform(1, self.timing.expired_ms / 1000))
        await self.kill(target, killed)
        await asyncio.sleep(dice.uniform(0, 1))
        for rule in rules:
            await rule.remove()
        await asyncio.sleep(dice.uniform(0, 1))
        await self.install(target, self._alone(target, second))
        return f"broker {first} isolated, broker {killed} killed, {first} back, {second} isolated"

    def _alone(self, target: Target, broker: int) -> list[Made]:
        others = [str(each) for each in target.broker_ids if each != broker]
        return [rule for each in (*others, ZOOKEEPER) for rule in both_ways(str(broker), each)]

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(bite_detection.registered_anew(evidence) or bite_detection.left_isr(evidence))


class Resets(NetworkFault):
    """Two seconds of refused packets, two seconds of peace, and once again."""

    row, name = "F27", "connections reset, on and off"
    lasts_ms = (6_000, 7_000)

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.silent_ms)

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = await self.aim(target, dice)
        refused = ("REJECT", "--reject-with", "tcp-reset")
        others = [str(each) for each in target.broker_ids if each != victim]
        made = [one_way(each, str(victim), "-p", "tcp", target=refused) for each in (*others, CLIENTS)]
        self.meanwhile(self._on_and_off(target, self.prepare(target, made)))
        return f"TCP resets for all that {who} receives, 2 s on, 2 s off"

    async def _on_and_off(self, target: Target, rules: list[Installed]) -> None:
        while True:
            for rule in rules:
                await rule.install(target.undo)
            await asyncio.sleep(2)
            for rule in rules:
                await rule.remove()
            await asyncio.sleep(2)

    def bit(self, evidence: Evidence) -> str | None:
        return f"{self.packets:,} packets answered with a reset" if self.packets else None


class PacketsLost(NetworkFault):
    """TCP repeats them, later each time; who is too late for an ISR or a session falls out of it."""

    row, name = "F28", "30 % of packets lost"

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.shrunk_ms, self.timing.shrunk_ms + 1_000

    @property
    def availability(self) -> Availability:
        return Availability(max(self.timing.lagging_ms, self.timing.silent_ms))

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = await self.aim(target, dice)
        by_chance = ("-m", "statistic", "--mode", "random", "--probability", "0.3")
        await self.install(target, [lambda network: Rule(str(victim), "INPUT", by_chance)])
        return f"30 % of what {who} receives is lost"

    def bit(self, evidence: Evidence) -> str | None:
        return f"{self.packets:,} packets lost" if self.packets else None

    def broken(self, evidence: Evidence) -> str | None:
        return recovery_bounds.isr_changed_often(evidence, _ISR_CHANGE_MS)


class HalfOpen(NetworkFault):
    """The host is gone: nobody is told that its connections are closed."""

    row, name = "F31", "broker vanished without closing its connections"
    needs = frozenset({Need.NETWORK, Need.PROCESSES, Need.RESTARTS})

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.expired_ms + 1_000, self.timing.expired_ms + 2_000

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.silent_ms)

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = leader_of_one(await target.view(), dice)
        self.will_restart(target, victim)
        everything = [
            lambda network: Rule(str(victim), "INPUT"),
            lambda network: Rule(str(victim), "OUTPUT"),
        ]
        await self.install(target, everything)
        await kill(target.broker_process(victim), f"broker {victim}")
        return f"{who}, unplugged and killed"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(bite_detection.registered_anew(evidence, self.victims))

"""F19–F28 and F31–F32: members of the cluster that cannot reach each other, one way or both, wholly or by chance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import cast

from tidelog.chaos.fault import Availability, Evidence, Need, Target
from tidelog.chaos.faults import signs
from tidelog.chaos.faults.harm import Timing, kill
from tidelog.chaos.faults.namespaces import CLIENTS, Namespaces
from tidelog.chaos.faults.packets import Installed, Rule, one_way
from tidelog.chaos.faults.processes import BrokerFault, leader_of_one
from tidelog.local.place import ZOOKEEPER

Made = Callable[[Namespaces], Rule]


class NetworkFault(BrokerFault):
    """Its rules are removed when it is healed; it has bitten where they met packets."""

    needs = frozenset({Need.NETWORK})

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._rules: list[Installed] = []
        # Longer than a session and than what a follower may lag behind.
        patience = max(self.timing.session_timeout_ms, 3 * self.timing.replica_lag_time_max_ms // 2)
        self.lasts_ms = (patience + 2_000, patience + 6_000)

    async def install(self, target: Target, rules: Iterable[Made]) -> list[Installed]:
        network = cast(Namespaces, target.furnishing(Need.NETWORK))
        made = [Installed(network, rule(network)) for rule in rules]
        for rule in made:
            self._rules.append(rule)
            self.mend(rule.remove)
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


class LeaderCutFromFollowers(NetworkFault):
    row, name = "F19", "leader cut off from its followers"

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = leader_of_one(await target.view(), dice)
        self.victims = (victim,)
        await self.install(target, [rule for each in self.far(target, victim) for rule in both_ways(str(victim), each)])
        return f"{who}, cut off from {self.named(target, victim)}"

    def far(self, target: Target, victim: int) -> list[str]:
        """Whom the victim cannot reach."""
        return [str(each) for each in target.broker_ids if each != victim]

    def named(self, target: Target, victim: int) -> str:
        return "brokers " + " and ".join(self.far(target, victim))

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(signs.left_isr(evidence) or signs.leaders_changed(evidence))


class LeaderCutFromZooKeeper(LeaderCutFromFollowers):
    row, name = "F20", "leader cut off from ZooKeeper"

    def far(self, target: Target, victim: int) -> list[str]:
        return [ZOOKEEPER]

    def named(self, target: Target, victim: int) -> str:
        return "ZooKeeper"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(signs.registered_anew(evidence, self.victims))


class LeaderCutFromAllButClients(LeaderCutFromFollowers):
    """The classic split brain: old clients still talk to it."""

    row, name = "F21", "leader cut off from all but its clients"

    def far(self, target: Target, victim: int) -> list[str]:
        return [*super().far(target, victim), ZOOKEEPER]

    def named(self, target: Target, victim: int) -> str:
        return "ZooKeeper and all other brokers"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(signs.registered_anew(evidence, self.victims))


class LeaderUnheard(LeaderCutFromFollowers):
    """It hears its followers, and they do not hear it."""

    row, name = "F22", "leader not heard by its followers"

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = leader_of_one(await target.view(), dice)
        self.victims = (victim,)
        await self.install(target, [one_way(str(victim), each) for each in self.far(target, victim)])
        return f"{who}: nothing from it to {self.named(target, victim)}"


class LeaderDeaf(LeaderCutFromFollowers):
    """They hear it, and it does not hear them."""

    row, name = "F22", "leader that does not hear its followers"

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = leader_of_one(await target.view(), dice)
        self.victims = (victim,)
        await self.install(target, [one_way(each, str(victim)) for each in self.far(target, victim)])
        return f"{who}: nothing to it from {self.named(target, victim)}"


class PairCut(NetworkFault):
    """Two brokers cannot reach each other, and a third reaches both."""

    row, name = "F23", "two brokers cut off from each other"

    async def inject(self, target: Target, dice: random.Random) -> str:
        one, other = self.victims = tuple(sorted(dice.sample(target.broker_ids, 2)))
        await self.install(target, both_ways(str(one), str(other)))
        return f"brokers {one} and {other} cut off from each other"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(signs.left_isr(evidence) or signs.leaders_changed(evidence))


class ClientsCutFromLeader(NetworkFault):
    row, name = "F24", "clients cut off from a leader"

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self.lasts_ms = (2_000, 8_000)

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = leader_of_one(await target.view(), dice)
        self.victims = (victim,)
        await self.install(target, both_ways(CLIENTS, str(victim)))
        return f"all clients cut off from {who}"

    def bit(self, evidence: Evidence) -> str | None:
        slow = signs.slowed(evidence, 1_000)
        errors = f"{sum(evidence.errors.values())} operations failed" if evidence.errors else None
        return self.counted(slow or errors or "clients were cut off")


class IsolationAndKill(NetworkFault):
    """One broker is alone, one of the others is killed; the first is back, and another is alone."""

    row, name = "F25", "one broker isolated, another killed, then another isolated"
    needs = frozenset({Need.NETWORK, Need.PROCESSES, Need.RESTARTS})
    availability = Availability(None, leaves_majority=False)

    async def inject(self, target: Target, dice: random.Random) -> str:
        first, killed, *rest = dice.sample(target.broker_ids, len(target.broker_ids))
        second = rest[0] if rest else killed
        rules = await self.install(target, self._alone(target, first))
        await asyncio.sleep(dice.uniform(1, 1.5 * self.timing.session_timeout_ms / 1000))
        await self.kill(target, killed)
        await asyncio.sleep(dice.uniform(0, 2))
        for rule in rules:
            await rule.remove()
        await asyncio.sleep(dice.uniform(0, 2))
        await self.install(target, self._alone(target, second))
        return f"broker {first} isolated, broker {killed} killed, {first} back, {second} isolated"

    def _alone(self, target: Target, broker: int) -> list[Made]:
        others = [str(each) for each in target.broker_ids if each != broker]
        return [rule for each in (*others, ZOOKEEPER) for rule in both_ways(str(broker), each)]

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(signs.registered_anew(evidence) or signs.left_isr(evidence))


class AnswersLost(NetworkFault):
    """Requests arrive and are carried out; what is longer than a heartbeat or an empty packet, does not come back."""

    row, name = "F26", "answers of a leader lost"

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self.lasts_ms = (2_000, 8_000)

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = leader_of_one(await target.view(), dice)
        self.victims = (victim,)
        longer = ("-p", "tcp", "-m", "length", "--length", "69:65535")
        await self.install(target, [one_way(str(victim), CLIENTS, *longer)])
        return f"packets of more than 68 bytes from {who}, to clients are lost"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted("answers were lost")


class Resets(NetworkFault):
    """Two seconds of refused packets, two seconds of peace."""

    row, name = "F27", "connections reset, on and off"
    lasts_ms = (8_000, 14_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self.lasts_ms = (8_000, 14_000)

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = leader_of_one(await target.view(), dice)
        self.victims = (victim,)
        self.meanwhile(self._on_and_off(target, str(victim)))
        return f"TCP resets for all that {who} receives, 2 s on, 2 s off"

    async def _on_and_off(self, target: Target, victim: str) -> None:
        refused = ("REJECT", "--reject-with", "tcp-reset")
        others = [str(each) for each in target.broker_ids if str(each) != victim]
        while True:
            rules = await self.install(
                target, [one_way(each, victim, "-p", "tcp", target=refused) for each in (*others, CLIENTS)]
            )
            await asyncio.sleep(2)
            for rule in rules:
                await rule.remove()
            await asyncio.sleep(2)

    def bit(self, evidence: Evidence) -> str | None:
        return f"{self.packets:,} packets answered with a reset" if self.packets else None


class PacketsLost(NetworkFault):
    row, name = "F28", "30 % of packets lost"

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = leader_of_one(await target.view(), dice)
        self.victims = (victim,)
        by_chance = ("-m", "statistic", "--mode", "random", "--probability", "0.3")
        await self.install(target, [lambda network: Rule(str(victim), "INPUT", by_chance)])
        return f"30 % of what {who} receives is lost"

    def bit(self, evidence: Evidence) -> str | None:
        return f"{self.packets:,} packets lost" if self.packets else None


class HalfOpen(NetworkFault):
    """The host is gone: nobody is told that its connections are closed."""

    row, name = "F31", "broker vanished without closing its connections"
    needs = frozenset({Need.NETWORK, Need.PROCESSES, Need.RESTARTS})

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self.availability = Availability(2 * self.timing.session_timeout_ms + 3_000)

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
        return self.counted(signs.registered_anew(evidence, self.victims))


class StaleQueues(LeaderCutFromAllButClients):
    """What was queued for ten seconds and more arrives when the cut is healed, and is refused by its deadline."""

    row, name = "F32", "queued requests arrive late"

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self.lasts_ms = (10_000, 14_000)

    def far(self, target: Target, victim: int) -> list[str]:
        return [str(each) for each in target.broker_ids if each != victim]

    def named(self, target: Target, victim: int) -> str:
        return "all other brokers"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(signs.left_isr(evidence) or signs.leaders_changed(evidence))

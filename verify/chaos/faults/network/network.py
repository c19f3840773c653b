"""Implement F19–F28 and F31: members of the cluster that cannot reach each other, in one direction or both, always or
by chance.
"""

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

RuleFactory = Callable[[Namespaces], Rule]

#: The limit of elections of one partition while two brokers cannot reach each other.
_MOST_ELECTIONS_A_MINUTE = 3
#: The least average time between two changes of one partition's ISR while packets are lost.
_ISR_CHANGE_MS = 5_000


class NetworkFault(BrokerFault):
    """A fault of the network. Healing removes the packet rules of `prepare` and `install`. A fault whose rules matched
    no packet has not bitten.
    """

    needs = frozenset({Need.NETWORK})

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._rules: list[Installed] = []

    async def choose_leader(self, target: Target, rng: random.Random) -> tuple[int, str]:
        """Return the leader of a random partition, and its description. The leader becomes the only victim."""
        victim, victim_name = leader_of_one(await target.view(), rng)
        self.victims = (victim,)
        return victim, victim_name

    def prepare(self, target: Target, rules: Iterable[RuleFactory]) -> list[Installed]:
        """Return rules that are not active yet. Healing removes them.

        A task of `meanwhile` that installs and removes them must start after this call, so that it ends before their
        removal.
        """
        network = cast(Namespaces, target.prerequisite(Need.NETWORK))
        made = [Installed(network, rule(network)) for rule in rules]
        for rule in made:
            self._rules.append(rule)
            self.on_heal(rule.remove)
        return made

    async def install(self, target: Target, rules: Iterable[RuleFactory]) -> list[Installed]:
        made = self.prepare(target, rules)
        for rule in made:
            await rule.install(target.undo)
        return made

    @property
    def packets(self) -> int:
        return sum(rule.packets for rule in self._rules)

    def counted(self, sign: str | None) -> str | None:
        """Return the observation together with the number of packets that the rules matched, or None if there is no
        observation or no packet.
        """
        return f"{sign}; {self.packets:,} packets dropped" if sign and self.packets else None


def both_ways(one: str, other: str) -> list[RuleFactory]:
    """Return the factories of rules that drop all packets between two members."""
    return [one_way(one, other), one_way(other, one)]


# --- a leader cut off ------------------------------------------------------------------------------------------


class LeaderCutFromFollowers(NetworkFault):
    """A leader that is cut off from all other brokers. The leader shrinks its ISR to itself and acknowledges nothing
    with acks=all. In a cluster of three, other leaders shrink theirs to two members and continue.
    """

    row, name = "F19", "leader cut off from its followers"

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.shrunk_ms + 500, self.timing.shrunk_ms + 1_500

    @property
    def availability(self) -> Availability:
        return Availability(self.lasts_ms[1] + self.timing.reconnected_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = await self.choose_leader(target, rng)
        await self.install(target, [rule for each in self.far(target, victim) for rule in self.cut(str(victim), each)])
        return self.description(victim_name, self.named(target, victim))

    def far(self, target: Target, victim: int) -> list[str]:
        """Return the members that the victim cannot reach: broker ids such as "1", or "zookeeper"."""
        return [str(each) for each in target.broker_ids if each != victim]

    def named(self, target: Target, victim: int) -> str:
        return "brokers " + " and ".join(self.far(target, victim))

    def cut(self, victim: str, other: str) -> list[RuleFactory]:
        """Return the factories of the rules between the victim and another member."""
        return both_ways(victim, other)

    def description(self, victim_name: str, others: str) -> str:
        return f"{victim_name}, cut off from {others}"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(bite_detection.left_isr(evidence) or bite_detection.leaders_changed(evidence))


class LeaderUnheard(LeaderCutFromFollowers):
    """A leader that receives from its followers, but cannot send to them."""

    row, name = "F22", "leader not heard by its followers"

    def cut(self, victim: str, other: str) -> list[RuleFactory]:
        return [one_way(victim, other)]

    def description(self, victim_name: str, others: str) -> str:
        return f"{victim_name}: nothing from it to {others}"


class LeaderDeaf(LeaderCutFromFollowers):
    """A leader that can send to its followers, but receives nothing from them."""

    row, name = "F22", "leader that does not hear its followers"

    def cut(self, victim: str, other: str) -> list[RuleFactory]:
        return [one_way(other, victim)]

    def description(self, victim_name: str, others: str) -> str:
        return f"{victim_name}: nothing to it from {others}"


class LeaderCutFromZooKeeper(LeaderCutFromFollowers):
    row, name = "F20", "leader cut off from ZooKeeper"

    @property
    def lasts_ms(self) -> tuple[int, int]:
        # The cut lasts until another leader acknowledges records that the old leader does not have.
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
    """A split brain: a leader is cut off from ZooKeeper and all other brokers, but clients can still connect to it."""

    row, name = "F21", "leader cut off from all but its clients"

    def far(self, target: Target, victim: int) -> list[str]:
        return [*LeaderCutFromFollowers.far(self, target, victim), ZOOKEEPER]

    def named(self, target: Target, victim: int) -> str:
        return "ZooKeeper and all other brokers"


# --- others ----------------------------------------------------------------------------------------------------


class PairCut(NetworkFault):
    """Two brokers that cannot reach each other, while a third reaches both."""

    row, name = "F23", "two brokers cut off from each other"

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.shrunk_ms + 500, self.timing.shrunk_ms + 1_500

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.lagging_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        one, other = self.victims = tuple(sorted(rng.sample(target.broker_ids, 2)))
        await self.install(target, both_ways(str(one), str(other)))
        return f"brokers {one} and {other} cut off from each other"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(bite_detection.left_isr(evidence) or bite_detection.leaders_changed(evidence))

    def broken(self, evidence: Evidence) -> str | None:
        return recovery_bounds.elected_often(evidence, _MOST_ELECTIONS_A_MINUTE)


class ClientsCutFromLeader(NetworkFault):
    """Clients that cannot reach a leader. The cluster is not involved: clients wait, and then find the same leader."""

    row, name = "F24", "clients cut off from a leader"
    lasts_ms = (2_000, 4_000)

    @property
    def availability(self) -> Availability:
        return Availability(self.lasts_ms[1] + self.timing.reconnected_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = await self.choose_leader(target, rng)
        await self.install(target, self.cut(str(victim)))
        return self.description(victim_name)

    def cut(self, victim: str) -> list[RuleFactory]:
        return both_ways(CLIENTS, victim)

    def description(self, victim_name: str) -> str:
        return f"all clients cut off from {victim_name}"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(bite_detection.paused(evidence, 1_000))

    def broken(self, evidence: Evidence) -> str | None:
        return bite_detection.registered_anew(evidence, self.victims)


class AnswersLost(ClientsCutFromLeader):
    """A leader's answers to clients are lost. Requests arrive and are executed, but no packet with the TCP flag PSH
    returns. The kernel sets the flag on the last packet of each response. Packets without data pass, because they do
    not have it.
    """

    row, name = "F26", "answers of a leader lost"

    def cut(self, victim: str) -> list[RuleFactory]:
        return [one_way(victim, CLIENTS, "-p", "tcp", "--tcp-flags", "PSH", "PSH")]

    def description(self, victim_name: str) -> str:
        return f"packets with data from {victim_name}, to clients are lost"


class IsolationAndKill(NetworkFault):
    """One broker is isolated and another one is killed. Then the first one returns, and a third one is isolated, or the
    killed one if there is no third.

    An isolated broker reaches neither ZooKeeper nor other brokers, but clients can connect to it.
    """

    row, name = "F25", "one broker isolated, another killed, then another isolated"
    needs = frozenset({Need.NETWORK, Need.PROCESSES, Need.RESTARTS})
    availability = UNAVAILABLE
    lasts_ms = (2_500, 3_500)

    async def inject(self, target: Target, rng: random.Random) -> str:
        first, killed, *rest = rng.sample(target.broker_ids, len(target.broker_ids))
        second = rest[0] if rest else killed
        rules = await self.install(target, self._alone(target, first))
        await asyncio.sleep(rng.uniform(1, self.timing.expired_ms / 1000))
        await self.kill(target, killed)
        await asyncio.sleep(rng.uniform(0, 1))
        for rule in rules:
            await rule.remove()
        await asyncio.sleep(rng.uniform(0, 1))
        await self.install(target, self._alone(target, second))
        return f"broker {first} isolated, broker {killed} killed, {first} back, {second} isolated"

    def _alone(self, target: Target, broker: int) -> list[RuleFactory]:
        others = [str(each) for each in target.broker_ids if each != broker]
        return [rule for each in (*others, ZOOKEEPER) for rule in both_ways(str(broker), each)]

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(bite_detection.registered_anew(evidence) or bite_detection.left_isr(evidence))


class Resets(NetworkFault):
    """Connections between a leader and other brokers or clients that are reset: two seconds with resets, two seconds
    without, repeatedly. The connection to ZooKeeper stays.
    """

    row, name = "F27", "connections reset, on and off"
    lasts_ms = (6_000, 7_000)

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.silent_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = await self.choose_leader(target, rng)
        refused = ("REJECT", "--reject-with", "tcp-reset")
        others = [str(each) for each in target.broker_ids if each != victim]
        made = [one_way(each, str(victim), "-p", "tcp", target=refused) for each in (*others, CLIENTS)]
        self.meanwhile(self._on_and_off(target, self.prepare(target, made)))
        return f"TCP resets for all that {victim_name} receives, 2 s on, 2 s off"

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
    """30 % of the packets to a leader are lost, which TCP sends again with increasing delay. A broker may exceed the
    limits of its ISRs or its session.
    """

    row, name = "F28", "30 % of packets lost"

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.shrunk_ms, self.timing.shrunk_ms + 1_000

    @property
    def availability(self) -> Availability:
        return Availability(max(self.timing.lagging_ms, self.timing.silent_ms))

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = await self.choose_leader(target, rng)
        by_chance = ("-m", "statistic", "--mode", "random", "--probability", "0.3")
        await self.install(target, [lambda network: Rule(str(victim), "INPUT", by_chance)])
        return f"30 % of what {victim_name} receives is lost"

    def bit(self, evidence: Evidence) -> str | None:
        return f"{self.packets:,} packets lost" if self.packets else None

    def broken(self, evidence: Evidence) -> str | None:
        return recovery_bounds.isr_changed_often(evidence, _ISR_CHANGE_MS)


class HalfOpen(NetworkFault):
    """A host that disappears without closing its connections: its packets are dropped and its broker is killed."""

    row, name = "F31", "broker vanished without closing its connections"
    needs = frozenset({Need.NETWORK, Need.PROCESSES, Need.RESTARTS})

    @property
    def lasts_ms(self) -> tuple[int, int]:
        return self.timing.expired_ms + 1_000, self.timing.expired_ms + 2_000

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.silent_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        self.will_restart(target, victim)
        everything = [
            lambda network: Rule(str(victim), "INPUT"),
            lambda network: Rule(str(victim), "OUTPUT"),
        ]
        await self.install(target, everything)
        await kill(target.broker_process(victim), f"broker {victim}")
        return f"{victim_name}, unplugged and killed"

    def bit(self, evidence: Evidence) -> str | None:
        return self.counted(bite_detection.registered_anew(evidence, self.victims))

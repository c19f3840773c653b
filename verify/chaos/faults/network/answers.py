"""Implement F40 and F41: writes that ZooKeeper executes without an answer, and writes of a replaced controller."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Mapping
from typing import cast

from tidelog.errors import LocalError
from tidelog.model import Endpoint
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.network.network import NetworkFault
from verify.chaos.faults.support.fault_base import UNAVAILABLE, Timing, leaders, look_until, wait_until, zookeeper_hosts
from verify.chaos.faults.support.namespaces import CLIENTS, Namespaces
from verify.chaos.faults.support.packets import Rule
from verify.chaos.faults.support.tools import run_aside
from verify.chaos.targets import sessions
from verify.chaos.targets.zookeeper_proxy import (
    BAD_VERSION,
    MULTI,
    SET_DATA,
    Fate,
    Request,
    ZooKeeperProxy,
)

_STATES, _IDS = "/brokers/topics/", "/brokers/ids/"
#: The kinds of writes whose sender must find out by itself whether the write was executed.
_WRITES: Mapping[str, Callable[[Request], bool]] = {
    "an election": lambda request: request.opcode == MULTI and request.writes(_STATES),
    "a change of an ISR": lambda request: request.opcode == SET_DATA and request.writes(_STATES),
    "a registration": lambda request: request.creates_in_a_multi(_IDS),
}
_ALL_LOST_S = 20.0


class ProxiedFault(NetworkFault):
    """Brokers connect to ZooKeeper through a proxy of the run until the fault is healed."""

    needs = frozenset({Need.NETWORK, Need.PROCESSES, Need.RESTARTS, Need.ZOOKEEPER_ACCESS})

    async def divert(self, target: Target) -> ZooKeeperProxy:
        """Close all brokers' connections to ZooKeeper, redirect new ones to a proxy until the fault is healed, and
        return the proxy.

        Raise LocalError if fewer connections than brokers reach the proxy within 10 s.
        """
        network = cast(Namespaces, target.prerequisite(Need.NETWORK))
        zookeeper = Endpoint.parse(zookeeper_hosts(target))
        proxy = ZooKeeperProxy(zookeeper, network.address(CLIENTS))
        proxy.__enter__()
        brokers = [str(broker) for broker in target.broker_ids]

        async def reconnect() -> None:
            """Close the proxied connections, so that the brokers connect to ZooKeeper directly."""
            proxy.__exit__(None, None, None)

        self.on_heal(reconnect)
        to_zookeeper = ("-p", "tcp", "-d", zookeeper.host, "--dport", str(zookeeper.port))
        elsewhere = ("DNAT", "--to-destination", proxy.hosts)

        def diverted(broker: str) -> Callable[[Namespaces], Rule]:
            return lambda network: Rule(broker, "OUTPUT", to_zookeeper, elsewhere, table="nat")

        await self.install(target, [diverted(broker) for broker in brokers])
        for broker in brokers:
            closing = ("ss", "-K", "dst", zookeeper.host, "dport", "=", str(zookeeper.port))
            await run_aside(*network.inside(broker), *closing)
        await wait_until("brokers to connect through the proxy", lambda: proxy.connections >= len(brokers), 10)
        return proxy

    async def leader_other_than(self, target: Target, rng: random.Random, spared: int) -> int:
        """Return a random broker that leads a partition and is not `spared`, so that its death causes an election.
        Raise LocalError if there is none.
        """
        led = {leader for leader in leaders(await target.view()).values() if leader != spared}
        if not led:
            raise LocalError("only the controller leads partitions")
        return rng.choice(sorted(led))


class AnswersOfZooKeeperLost(ProxiedFault):
    """Writes whose answers are lost: ZooKeeper executes the write, and the connection breaks before the answer.

    The answer is lost once for each of an election, a change of an ISR, and a registration. After a write that
    ZooKeeper refused because of a version, the answer to the next write of that kind is lost too.
    """

    row, name = "F40", "answers of ZooKeeper lost"
    lasts_ms = (500, 1_000)

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.silent_ms)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._lost: dict[str, Request] = {}

    async def inject(self, target: Target, rng: random.Random) -> str:
        view = await target.view()
        victim = await self.leader_other_than(target, rng, view.controller)
        proxy = await self.divert(target)
        proxy.follow(self._judge)
        await self.kill(target, victim)
        await asyncio.sleep(rng.uniform(0.5, 2.0))
        await target.start_broker(victim)
        await wait_until("an answer lost to each kind of write", self._all_lost, _ALL_LOST_S)
        return f"answers to writes lost while broker {victim} is killed and comes back"

    def _judge(self, request: Request) -> Fate:
        kind = next((kind for kind, is_meant in _WRITES.items() if is_meant(request)), None)
        if kind is None or (kind in self._lost and not _was_refused(self._lost[kind])):
            return Fate.PASSES
        self._lost[kind] = request
        return Fate.LOSES_ANSWER

    def _all_lost(self) -> bool:
        """Return whether ZooKeeper has executed one write of each kind without delivering the answer."""
        return all(
            (request := self._lost.get(kind)) is not None and request.answered.is_set() and not _was_refused(request)
            for kind in _WRITES
        )

    def bit(self, evidence: Evidence) -> str | None:
        return f"executed without an answer: {', '.join(_WRITES)}" if self._all_lost() else None


def _was_refused(request: Request) -> bool:
    """Return whether ZooKeeper refused the write because of a version. Such a write had no effect for the sender to
    find out.
    """
    return BAD_VERSION in request.answer


class ZombieController(ProxiedFault):
    """A controller whose write reaches ZooKeeper after another controller was elected, as if the first one had paused
    between a read and this write.

    The proxy delays the write, while the process is paused. ZooKeeper must refuse it because of the controller epoch.
    """

    row, name = "F41", "controller writes after it was replaced"
    availability = UNAVAILABLE
    lasts_ms = (0, 500)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._late: Request | None = None

    async def inject(self, target: Target, rng: random.Random) -> str:
        view = await target.view()
        zombie = view.controller
        victim = await self.leader_other_than(target, rng, zombie)
        proxy = await self.divert(target)
        held: list[Request] = []
        release = threading.Event()

        def hold(request: Request) -> Fate | threading.Event:
            if not held and request.opcode == MULTI and request.writes(_STATES):
                held.append(request)
                return release
            return Fate.PASSES

        async def let_go() -> None:
            release.set()

        self.on_heal(let_go)
        proxy.follow(hold)
        await self.kill(target, victim)
        await wait_until("the controller to write", lambda: held, 2 * self.timing.session_timeout_ms / 1000)
        self.pause(target, zombie)
        await asyncio.to_thread(sessions.delete, zookeeper_hosts(target), "/controller")
        await look_until(target, "another controller", lambda view: view.controller not in (-1, zombie), 10)
        release.set()
        try:
            await wait_until("the late write to arrive", held[0].answered.is_set, 5)
        finally:
            self._late = held[0]
        return f"broker {zombie}, the controller, paused before it wrote that broker {victim} no longer leads"

    def bit(self, evidence: Evidence) -> str | None:
        late = self._late
        if late is None or not late.answered.is_set() or not late.was_refused_by_a_check_of("/controller_epoch"):
            return None
        return "its late write was refused by the controller epoch"

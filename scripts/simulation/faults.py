"""Doing what a story says, and mending it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

from cluster import znodes
from cluster.store import NoNodeError
from simulation.brokers import SimulatedBroker
from simulation.cluster import Cluster
from simulation.network import Weather
from simulation.story import Fault, Kind
from tidelog.model import TopicPartition

Mend = Callable[[], object]


class Nemesis:
    """Injects faults into a cluster, and mends all of them in the end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._numbers = itertools.count()
        #: Brokers whose machines lost their power, as long as the cluster has not dealt with what they lack, and the
        #: epochs that they had then.
        self._short: dict[int, int] = {}
        self._wounds: dict[int, tuple[Fault, Mend]] = {}

    def inject(self, fault: Fault) -> None:
        """Now, and for as long as the fault says. Who is not there to be hit is not hit."""
        number = next(self._numbers)
        mends = list(self._strike(fault))
        self._cluster.trace.add("fault", fault.kind.value, *fault.whom, "" if mends or not fault.for_ms else "(void)")
        if mends and fault.for_ms:
            self._wounds[number] = (fault, lambda: [mend() for mend in mends])
            self._cluster.later(fault.for_ms, partial(self._mend, number))

    def heal(self) -> None:
        """All that lasts ends now."""
        for number in list(self._wounds):
            self._mend(number)
        cluster = self._cluster
        cluster.network.heal()
        for broker in cluster.brokers.values():
            broker.power_up()
            broker.go_on()
            broker.cut_from_zookeeper(False)
            broker.disk.heal()
            broker.start()
        cluster.network.changed()

    def _mend(self, number: int) -> None:
        if wound := self._wounds.pop(number, None):
            self._cluster.trace.add("mended", wound[0].kind.value, *wound[0].whom)
            wound[1]()

    # --- whom --------------------------------------------------------------------------------------------------

    def _brokers(self, names: tuple[str, ...]) -> list[SimulatedBroker]:
        found: dict[int, SimulatedBroker] = {}
        for name in names:
            broker_id = int(name) if name.isdigit() else self._of_role(name)
            if (broker := self._cluster.brokers.get(broker_id)) is not None:
                found[broker_id] = broker
        return list(found.values())

    def _may_lose_power(self, broker: SimulatedBroker) -> bool:
        """Whether every ISR keeps a member that has lost nothing: more than that nobody promises without fsync."""
        zookeeper = self._cluster.zookeeper
        registered = {}
        for name in zookeeper.node(znodes.BROKER_IDS).children:
            node = zookeeper.node(znodes.broker_path(int(name)))
            registered[int(name)] = znodes.decode_broker(int(name), node.data, node.czxid)
        for broker_id, before in list(self._short.items()):
            now = registered.get(broker_id)
            if now is not None and now.epoch != before and not now.possibly_short:
                del self._short[broker_id]
        lost = {broker.broker_id, *self._short}
        for topic in sorted(zookeeper.node(znodes.BROKER_TOPICS).children):
            for partition in sorted(zookeeper.node(znodes.partitions_path(topic)).children):
                state = zookeeper.node(znodes.state_path(TopicPartition(topic, int(partition)))).data
                if not set(znodes.decode_state(state).isr) - lost:
                    return False
        mine = registered.get(broker.broker_id)
        self._short[broker.broker_id] = -1 if mine is None else mine.epoch
        return True

    def _of_role(self, role: str) -> int:
        """As ZooKeeper has it now; −1 nobody."""
        zookeeper = self._cluster.zookeeper
        try:
            if role == "controller":
                return znodes.decode_controller(zookeeper.node(znodes.CONTROLLER).data)
            state = znodes.decode_state(zookeeper.node(znodes.state_path(self._cluster.first)).data)
        except NoNodeError:
            return -1
        if role == "leader":
            return state.leader
        return next((each for each in state.isr if each != state.leader), -1)

    # --- what --------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> Iterator[Mend]:
        cluster, kind = self._cluster, fault.kind
        network, zookeeper = cluster.network, cluster.zookeeper
        match kind:
            case Kind.CUT | Kind.ONE_WAY | Kind.RESET:
                one, other = (cluster.brokers[int(name)].machine.address for name in fault.whom)
                if kind is Kind.RESET:
                    network.reset_connections(one, other)
                    return
                network.cut(one, other)
                if kind is Kind.CUT:
                    network.cut(other, one)
                network.changed()
                yield partial(self._rejoin, one, [other])
            case Kind.CLIENT_CUT | Kind.CLIENT_KILL:
                client = cluster.clients[int(fault.whom[0].removeprefix("client-")) - 1]
                if client is None:
                    return
                if kind is Kind.CLIENT_KILL:
                    client.kill()
                    yield client.restart
                    return
                one, other = client.machine.address, cluster.brokers[int(fault.whom[1])].machine.address
                network.cut(one, other)
                network.cut(other, one)
                network.changed()
                yield partial(self._rejoin, one, [other])
            case Kind.SLOW | Kind.LOSS:
                slow = Weather((fault.amount * 200, fault.amount * 1000))
                network.weather = slow if kind is Kind.SLOW else Weather(loss=fault.amount / 100)
                yield self._calm
            case Kind.ZOOKEEPER_STOP:
                cluster.in_zookeeper(zookeeper.stop)
                yield partial(cluster.in_zookeeper, zookeeper.start)
            case Kind.ZOOKEEPER_FREEZE:
                cluster.in_zookeeper(zookeeper.freeze)
                yield partial(cluster.in_zookeeper, zookeeper.thaw)
            case _:
                for broker in self._brokers(fault.whom):
                    yield from self._strike_broker(fault, broker)

    def _strike_broker(self, fault: Fault, broker: SimulatedBroker) -> Iterator[Mend]:
        match fault.kind:
            case Kind.KILL if broker.runs:
                broker.kill()
                yield broker.start
            case Kind.STOP if broker.runs:
                broker.end()
                yield broker.start
            case Kind.POWER if broker.machine.up and self._may_lose_power(broker):
                broker.crash(self._cluster.dice)
                yield broker.power_up
                yield broker.start
            case Kind.HOLD if broker.runs:
                broker.hold()
                yield broker.go_on
            case Kind.ISOLATE:
                network, one = self._cluster.network, broker.machine.address
                others = [each.machine.address for each in self._cluster.brokers.values() if each is not broker]
                for other in others:
                    network.cut(one, other)
                    network.cut(other, one)
                network.changed()
                yield partial(self._rejoin, one, others)
            case Kind.ZOOKEEPER_CUT:
                broker.cut_from_zookeeper(True)
                yield partial(broker.cut_from_zookeeper, False)
            case Kind.ZOOKEEPER_BREAK:
                broker.break_zookeeper_connection()
            case Kind.EXPIRE:
                broker.expire_session()
            case Kind.CLOCK:
                broker.jump(fault.amount)
            case Kind.DISK_SLOW:
                broker.disk.slow(write_ms=fault.amount / 10, sync_ms=fault.amount)
                yield broker.disk.heal

    def _rejoin(self, one: str, others: list[str]) -> None:
        for other in others:
            self._cluster.network.heal_between(one, other)
        self._cluster.network.changed()

    def _calm(self) -> None:
        self._cluster.network.weather = Weather()

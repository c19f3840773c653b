"""Inject the faults of a scenario into a cluster at their times, and heal them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from cluster.zookeeper import znodes
from cluster.zookeeper.store import NoNodeError, Set
from tidelog.history import broker_events
from tidelog.history.broker_events import BrokerEvent
from tidelog.model import TopicPartition
from verify.simulation.cluster.admin_operations import AdminOperations
from verify.simulation.cluster.brokers import SimulatedBroker
from verify.simulation.cluster.cluster import OFFSETS_TPS, Cluster
from verify.simulation.cluster.durability_model import DurabilityModel
from verify.simulation.cluster.fault_injection import FaultInjector, InjectedFault
from verify.simulation.fault_counts import FaultCounts
from verify.simulation.fault_kinds import (
    CONTROLLER,
    COORDINATOR,
    COORDINATORS_FOLLOWER,
    FOLLOWER,
    IN_SYNC,
    IT,
    LEADER,
    Fault,
    Moment,
)

_MOMENTS: dict[type, Moment] = {
    broker_events.Ack: Moment.ACKNOWLEDGES,
    broker_events.BecomeLeader: Moment.LEADS,
    broker_events.BecomeFollower: Moment.FOLLOWS,
    broker_events.Truncate: Moment.CUTS,
    broker_events.Registered: Moment.REGISTERS,
    broker_events.Controller: Moment.CONTROLS,
}


class Nemesis:
    """The nemesis, which injects faults, and heals them after their time or in `heal`.

    fault_counts   how often each fault was drawn and had an effect
    """

    def __init__(self, cluster: Cluster, durability: DurabilityModel, admin_operations: AdminOperations) -> None:
        self.fault_counts = FaultCounts()
        self._cluster = cluster
        self._durability = durability
        self._injector = FaultInjector(cluster, durability, admin_operations)
        self._numbers = itertools.count()
        self._waiting: list[Fault] = []
        self._is_over = False
        self._active: dict[int, tuple[Fault, list[InjectedFault]]] = {}

    def inject(self, fault: Fault) -> None:
        """Inject a fault now, or after the next event that the fault names. Heal it after `for_ms`; 0: not before
        `heal`.

        A fault whose victim does not exist has no effect. After `heal` nothing is injected.
        """
        if self._is_over:
            return
        self.fault_counts.draw(_names(fault))
        if fault.upon is None:
            self._inject_now(fault, -1)
        else:
            self._waiting.append(fault)

    def take(self, broker_id: int, event: BrokerEvent) -> None:
        """Inject, after their delays, the faults that wait for this event of a broker's history."""
        if not self._waiting:
            return
        if isinstance(event, broker_events.Append):
            moment = Moment.APPENDS if event.role == "leader" else Moment.COPIES
        elif isinstance(event, broker_events.IsrChange):
            if not event.ok:
                return
            moment = Moment.CHANGES_ISR
        elif (found := _MOMENTS.get(type(event))) is not None:
            moment = found
        else:
            return
        self._come_to(moment, broker_id, getattr(event, "tp", None))

    def heal(self) -> None:
        """Heal all active faults, drop the waiting ones, and inject no more.

        Also remove all cuts, also those from ZooKeeper. Power up, resume and start each broker, and heal its disk.
        """
        self._is_over = True
        self._waiting.clear()
        for number in list(self._active):
            self._heal_fault(number)
        cluster = self._cluster
        cluster.network.heal()
        for broker in cluster.brokers.values():
            broker.power_up()
            broker.resume()
            broker.cut_from_zookeeper(False)
            broker.disk.heal()
            broker.start()
        cluster.network.changed()

    def settle(self) -> None:
        """Count the effects of the faults that are still active when a scenario ends, without healing them."""
        for fault, effects in self._active.values():
            self._count(fault, effects)
        self._active.clear()

    def _count(self, fault: Fault, effects: list[InjectedFault]) -> None:
        if any(effect.bit() for effect in effects):
            self.fault_counts.bite(_names(fault))
        for also in filter(None, (effect.also for effect in effects)):
            self.fault_counts.draw([also])
            self.fault_counts.bite([also])

    def _heal_fault(self, number: int) -> None:
        if (active := self._active.pop(number, None)) is None:
            return
        fault, effects = active
        self._count(fault, effects)
        if fault.for_ms:
            self._cluster.trace.add("mended", fault.kind.value, *fault.whom)
        for effect in effects:
            for heal in effect.heals:
                heal()

    # --- times --------------------------------------------------------------------------------------------------

    def take_write(self, broker_id: int, write: Set) -> None:
        """Take a write to a znode that is about to leave a broker, for the durability model, and for faults that wait
        for it.
        """
        self._durability.proposed(write)
        if self._waiting and write.path == znodes.state_path(self._cluster.first):
            self._come_to(Moment.PROPOSES, broker_id, self._cluster.first)

    def _come_to(self, moment: Moment, broker_id: int, tp: TopicPartition | None) -> None:
        if tp is not None and tp != self._cluster.first:
            return
        for fault in [each for each in self._waiting if each.upon is moment]:
            self._waiting.remove(fault)
            self._cluster.later(fault.after_us / 1000, partial(self._inject_now, fault, broker_id))

    def _inject_now(self, fault: Fault, it: int) -> None:
        if self._is_over:
            return
        number = next(self._numbers)
        brokers = list(self._brokers(fault.whom, it))
        effects = list(self._injector.inject(fault, brokers))
        hit = [broker.broker_id for broker in brokers]
        self._cluster.trace.add("fault", fault.kind.value, *(hit or fault.whom), "" if effects else "(void)")
        if effects:
            self._active[number] = (fault, effects)
        # other faults are counted at the end, because operations of the administrator take time
        if effects and fault.for_ms:
            self._cluster.later(fault.for_ms, partial(self._heal_fault, number))

    # --- victims --------------------------------------------------------------------------------------------------

    def _brokers(self, names: tuple[str, ...], it: int) -> Iterator[SimulatedBroker]:
        """Yield each named broker once. Names of clients are skipped."""
        found = dict.fromkeys(itertools.chain.from_iterable(self._ids(name, it) for name in names))
        for broker_id in found:
            if (broker := self._cluster.brokers.get(broker_id)) is not None:
                yield broker

    def _ids(self, name: str, it: int) -> tuple[int, ...]:
        """Return the id that the name is, or the ids of the brokers that have this role in ZooKeeper now.

        Empty for the name of a client, and while the role's znode does not exist. FOLLOWER is only the first ISR member
        besides the leader, COORDINATORS_FOLLOWER the last. `it` is the broker of the awaited event.
        """
        if name.isdigit():
            return (int(name),)
        zookeeper = self._cluster.zookeeper
        try:
            if name == IT:
                return (it,)
            if name == CONTROLLER:
                return (znodes.decode_controller(zookeeper.node(znodes.CONTROLLER).data),)
            tp = OFFSETS_TPS[0] if name in (COORDINATOR, COORDINATORS_FOLLOWER) else self._cluster.first
            state = znodes.decode_state(zookeeper.node(znodes.state_path(tp)).data)
        except NoNodeError:
            return ()
        if name in (LEADER, COORDINATOR):
            return (state.leader,)
        if name == IN_SYNC:
            return state.isr
        followers = tuple(each for each in state.isr if each != state.leader)
        # The first one is likely to be the next leader.
        return followers[:1] if name == FOLLOWER else followers[-1:] if name == COORDINATORS_FOLLOWER else ()


def _names(fault: Fault) -> list[str]:
    """Return the names under which the fault is counted."""
    names = [fault.kind.value]
    if COORDINATOR in fault.whom:
        names.append("hits the coordinator")
    if fault.upon is not None:
        names.append(f"upon {fault.upon.value}")
    return names

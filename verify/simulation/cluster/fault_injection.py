"""Inject each kind of fault into a cluster, heal it, and tell whether it had an effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from storage.file_names import offset_of
from storage.log_names import partition_named
from tidelog.groups.offsets_topic import CommitKey, encode_key
from tidelog.records.encode import encode_batch
from verify.simulation.cluster.admin_operations import Operator, Order
from verify.simulation.cluster.brokers import EPOCH_MS, SimulatedBroker
from verify.simulation.cluster.cluster import OFFSETS_TPS, Cluster
from verify.simulation.cluster.durability_model import Wholeness
from verify.simulation.cluster.network import NetworkConditions
from verify.simulation.disks.failing_files import Fault as DiskFault
from verify.simulation.disks.page_cache import KEPT
from verify.simulation.fault_kinds import Fault, Kind

Mend = Callable[[], object]

_DISK_FAULTS = {
    Kind.DISK_WRITE: DiskFault.WRITE_ERROR,
    Kind.DISK_SYNC: DiskFault.SYNC_ERROR,
    Kind.DISK_FULL: DiskFault.FULL,
}

#: Faults that would let one broker, or all brokers, continue with a session that was expired early.
_KEEPS_FROM_HEARING = frozenset({Kind.HOLD, Kind.ZOOKEEPER_CUT, Kind.ZOOKEEPER_SLOW})
_KEEPS_ALL_FROM_HEARING = frozenset({Kind.ZOOKEEPER_STOP, Kind.ZOOKEEPER_FREEZE})

#: Records of a later version among the committed offsets. A broker that loads them must skip them and continue.
_STRANGE = encode_batch(
    [
        (EPOCH_MS, b"\x00\x09of a later version", b"value", ()),
        (EPOCH_MS, encode_key(CommitKey("nobody", "orders", 0)), b"\x00\x63of a later version", ()),
        (EPOCH_MS, None, b"nobody's", ()),
    ]
)

#: A power loss that loses nothing, because no guarantee covers the loss of the last undamaged replica.
LAST_WHOLE = "power of the last whole one"


def _always() -> bool:
    return True


def _met(broker: SimulatedBroker) -> Callable[[], bool]:
    """Return a function that tells whether the fault affects a process: one that runs now or is started during the
    fault.
    """
    there, life = broker.runs, broker.lives
    return lambda: there or broker.lives > life


@dataclass(slots=True)
class Harm:
    """The effect of a fault on one of its victims.

    mends   functions that heal it
    bit     returns whether it had an effect; called before it is healed
    also    an additional name under which it is counted
    """

    mends: list[Mend] = field(default_factory=list)
    bit: Callable[[], bool] = _always
    also: str = ""


class Harms:
    """The injector of faults. A fault without a result has hit no victim."""

    def __init__(self, cluster: Cluster, wholeness: Wholeness, operator: Operator) -> None:
        self._cluster = cluster
        self._wholeness = wholeness
        self._operator = operator

    def strike(self, fault: Fault, brokers: list[SimulatedBroker]) -> Iterator[Harm]:
        """Inject a fault. `brokers` are the existing brokers that the fault names."""
        cluster, kind = self._cluster, fault.kind
        network, zookeeper = cluster.network, cluster.zookeeper
        if kind in _KEEPS_FROM_HEARING:
            brokers = [broker for broker in brokers if not broker.is_losing_session]
        if kind in _KEEPS_ALL_FROM_HEARING and any(each.is_losing_session for each in cluster.brokers.values()):
            return
        match kind:
            case Kind.CUT | Kind.ONE_WAY | Kind.RESET:
                if len(brokers) < 2:
                    return
                one, other = (broker.machine.address for broker in brokers[:2])
                if kind is not Kind.RESET:
                    yield self._cut([(one, other)] if kind is Kind.ONE_WAY else [(one, other), (other, one)])
                elif network.reset_connections(one, other):
                    yield Harm()
            case Kind.CLIENT_CUT | Kind.CLIENT_DEAF | Kind.CLIENT_KILL:
                client = cluster.clients[int(fault.whom[0].removeprefix("client-")) - 1]
                if client is None or not brokers:
                    return
                if kind is Kind.CLIENT_KILL:
                    alive = client.process.alive
                    client.kill()
                    yield Harm([client.restart], lambda: alive)
                    return
                one, other = client.machine.address, brokers[0].machine.address
                yield self._cut([(other, one)] if kind is Kind.CLIENT_DEAF else [(one, other), (other, one)])
            case Kind.SLOW | Kind.LOSS:
                late = network.late
                slow = NetworkConditions((fault.amount * 200, fault.amount * 1000))
                network.weather = slow if kind is Kind.SLOW else NetworkConditions(loss=fault.amount / 100)
                yield Harm([self._calm], lambda: network.late > late)
            case Kind.ZOOKEEPER_STOP:
                cluster.in_zookeeper(zookeeper.stop)
                yield Harm([partial(cluster.in_zookeeper, zookeeper.start)], self._met_any())
            case Kind.ZOOKEEPER_FREEZE:
                cluster.in_zookeeper(zookeeper.freeze)
                yield Harm([partial(cluster.in_zookeeper, zookeeper.thaw)], self._met_any())
            case Kind.STRANGE:
                yield from self._write_strange_offsets()
            case Kind.ELECT:
                elections = self._operator.elect()
                yield Harm(bit=lambda: elections.bit)
            case Kind.REASSIGN:
                move = self._operator.reassign(cluster.first, fault.amount)
                yield Harm(bit=lambda: move.bit)
            case Kind.CREATE | Kind.DELETE | Kind.MOVE | Kind.MOVE_OFFSETS | Kind.ALTER | Kind.ADD:
                order = self._order(fault)
                yield Harm(bit=lambda: order.bit)
            case _:
                for broker in brokers:
                    yield from self._strike_broker(fault, broker)

    def _order(self, fault: Fault) -> Order:
        """Start the administrator's operation."""
        operator = self._operator
        match fault.kind:
            case Kind.CREATE:
                return operator.create(fault.amount)
            case Kind.DELETE:
                return operator.delete()
            case Kind.MOVE:
                return operator.move(fault.amount)
            case Kind.MOVE_OFFSETS:
                return operator.move_offsets(fault.amount)
            case Kind.ALTER:
                return operator.alter()
            case _:
                return operator.add(self._cluster.first.topic)

    def _met_any(self) -> Callable[[], bool]:
        met = [_met(broker) for broker in self._cluster.brokers.values()]
        return lambda: any(each() for each in met)

    def _strike_broker(self, fault: Fault, broker: SimulatedBroker) -> Iterator[Harm]:
        match fault.kind:
            case Kind.KILL if broker.runs:
                broker.kill()
                yield Harm([broker.start])
            case Kind.STOP if broker.runs:
                broker.end()
                yield Harm([broker.start])
            case Kind.POWER if broker.machine.up:
                fate = self._wholeness.fate(broker.broker_id, self._cluster.dice)
                broker.crash(fate)
                also = LAST_WHOLE if fate is KEPT else ""
                yield Harm([broker.power_up, broker.start], lambda: fate is not KEPT, also)
            case Kind.TORN if broker.runs:
                yield self._tear(fault, broker)
            case Kind.HOLD if broker.runs:
                broker.hold()
                yield Harm([broker.go_on])
            case Kind.ISOLATE:
                one = broker.machine.address
                others = [each.machine.address for each in self._cluster.brokers.values() if each is not broker]
                yield self._cut([way for other in others for way in ((one, other), (other, one))])
            case Kind.ZOOKEEPER_CUT:
                broker.cut_from_zookeeper(True)
                yield Harm([partial(broker.cut_from_zookeeper, False)], _met(broker))
            case Kind.ZOOKEEPER_BREAK if broker.runs:
                broker.break_zookeeper_connection()
                yield Harm()
            case Kind.ZOOKEEPER_SLOW:
                broker.slow_zookeeper(fault.amount)
                yield Harm([partial(broker.slow_zookeeper, 0)], _met(broker))
            case Kind.EXPIRE if broker.may_lose_session:
                broker.expire_session()
                yield Harm()
            case Kind.CLOCK:
                broker.clock.jump(fault.amount)
                yield Harm(bit=_met(broker))
            case Kind.CLOCK_RATE:
                broker.clock.run_at(fault.amount / 100)
                yield Harm([partial(broker.clock.run_at, 1.0)], _met(broker))
            case Kind.DISK_SLOW:
                slowed = broker.disk.slowed
                broker.disk.slow(write_ms=fault.amount / 10, sync_ms=fault.amount, for_ms=fault.for_ms)
                yield Harm([broker.disk.heal], lambda: broker.disk.slowed > slowed)
            case Kind.DISK_WRITE | Kind.DISK_SYNC | Kind.DISK_FULL:
                refused = broker.disk.refused
                broker.disk.fail(_DISK_FAULTS[fault.kind])
                yield Harm([broker.disk.heal, broker.start], lambda: broker.disk.refused > refused)
            case Kind.FLIP:
                yield from self._flip(broker)

    def _tear(self, fault: Fault, broker: SimulatedBroker) -> Harm:
        """Kill the broker's process in the middle of its next write to a log."""
        life = broker.lives
        torn: list[bool] = []

        def cut() -> None:
            torn.append(True)
            broker.kill()

        broker.disk.tear(fault.amount / 100, cut)
        return Harm([broker.disk.heal, broker.start], lambda: bool(torn) and broker.lives >= life)

    def _flip(self, broker: SimulatedBroker) -> Iterator[Harm]:
        """Flip one bit in a closed segment, and let a client read it."""

        def led(directory: Path) -> bool:
            tp = partition_named(directory.name)
            return tp is not None and (replica := broker.replica(tp)) is not None and replica.partition.is_leader

        found = broker.disk.flip_closed(self._cluster.dice, led)
        if found is None:
            return
        path, following, mend = found
        tp, begin, end = partition_named(path.parent.name), offset_of(path.stem), offset_of(following.stem)
        assert tp is not None and begin is not None and end is not None
        # If the only good copy is opened with damage, it stays offline until an administrator elects another replica.
        if self._wholeness.is_last(broker.broker_id, tp):
            mend()
            return
        self._wholeness.damaged(broker.broker_id, tp)

        def spare() -> None:
            if self._wholeness.is_last(broker.broker_id, tp):
                mend()
            else:
                self._wholeness.opens_damaged(broker.broker_id, tp)

        broker.before_start[path] = spare
        reading = self._operator.read(tp, begin, end)
        mended = partial(self._wholeness.mended, broker.broker_id, tp)
        yield Harm([mend, mended, lambda: broker.before_start.pop(path, None)], lambda: reading.bit)

    def _write_strange_offsets(self) -> Iterator[Harm]:
        """Append strange offsets to every partition of __consumer_offsets that has a leader."""
        for broker in self._cluster.brokers.values():
            for tp in OFFSETS_TPS:
                if (replica := broker.replica(tp)) is not None and replica.partition.is_leader:
                    taken: list[bool] = []
                    broker.append(tp, _STRANGE, taken.append)
                    yield Harm(bit=partial(any, taken))

    def _cut(self, ways: list[tuple[str, str]]) -> Harm:
        network = self._cluster.network
        before = {way: network.stalled[way] for way in ways}
        for source, target in ways:
            network.cut(source, target)
        network.changed()
        return Harm([partial(self._rejoin, ways)], lambda: any(network.stalled[way] > before[way] for way in ways))

    def _rejoin(self, ways: list[tuple[str, str]]) -> None:
        for source, target in ways:
            self._cluster.network.heal_between(source, target)
        self._cluster.network.changed()

    def _calm(self) -> None:
        self._cluster.network.weather = NetworkConditions()

"""Inject each kind of fault into a cluster, heal it, and report whether it had an effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from storage.file_names import offset_of
from storage.log_names import partition_named
from tidelog.groups.offsets_topic import CommitKey, encode_key
from tidelog.records.encode import encode_batch
from verify.simulation.cluster.admin_operations import AdminOperation, AdminOperations
from verify.simulation.cluster.brokers import EPOCH_MS, SimulatedBroker
from verify.simulation.cluster.cluster import OFFSETS_TPS, Cluster
from verify.simulation.cluster.durability_model import DurabilityModel
from verify.simulation.cluster.network import NetworkConditions
from verify.simulation.disks.failing_files import Fault as DiskFault
from verify.simulation.disks.page_cache import KEPT
from verify.simulation.fault_kinds import Fault, FaultKind

HealStep = Callable[[], object]

_DISK_FAULTS = {
    FaultKind.DISK_WRITE: DiskFault.WRITE_ERROR,
    FaultKind.DISK_SYNC: DiskFault.SYNC_ERROR,
    FaultKind.DISK_FULL: DiskFault.FULL,
}

#: Faults that would let one broker, or all brokers, continue with a session that was expired early.
_KEEPS_FROM_HEARING = frozenset({FaultKind.HOLD, FaultKind.ZOOKEEPER_CUT, FaultKind.ZOOKEEPER_SLOW})
_KEEPS_ALL_FROM_HEARING = frozenset({FaultKind.ZOOKEEPER_STOP, FaultKind.ZOOKEEPER_FREEZE})

#: Records of a later version among the committed offsets. A broker that loads them must skip them and continue.
_STRANGE = encode_batch(
    [
        (EPOCH_MS, b"\x00\x09of a later version", b"value", ()),
        (EPOCH_MS, encode_key(CommitKey("unknown", "orders", 0)), b"\x00\x63of a later version", ()),
        (EPOCH_MS, None, b"unreadable", ()),
    ]
)

#: A power loss that loses nothing, because no guarantee covers the loss of the last undamaged replica.
LAST_WHOLE = "power of the last whole one"


def _always() -> bool:
    return True


def _met(broker: SimulatedBroker) -> Callable[[], bool]:
    """Return a function that returns whether the fault affects a process: one that runs now or is started during the
    fault.
    """
    there, life = broker.runs, broker.lives
    return lambda: there or broker.lives > life


@dataclass(slots=True)
class InjectedFault:
    """The effect of a fault on one of its victims.

    heals   functions that heal it
    bit     returns whether it had an effect; called before it is healed
    also    an additional name under which it is counted
    """

    heals: list[HealStep] = field(default_factory=list)
    bit: Callable[[], bool] = _always
    also: str = ""


class FaultInjector:
    """The injector of faults. A fault without a result has hit no victim."""

    def __init__(self, cluster: Cluster, durability: DurabilityModel, admin_operations: AdminOperations) -> None:
        self._cluster = cluster
        self._durability = durability
        self._admin_operations = admin_operations

    def inject(self, fault: Fault, brokers: list[SimulatedBroker]) -> Iterator[InjectedFault]:
        """Inject a fault and yield its effect on each victim. `brokers` are the existing brokers that the fault names.

        The caller must exhaust the iterator. A fault of brokers or clients that has no victim is not injected, and
        yields nothing. A broker that has not learned of its expired session is no victim of a fault that would keep it
        from learning. While there is such a broker, ZooKeeper as a whole is neither stopped nor frozen.
        """
        cluster, kind = self._cluster, fault.kind
        network, zookeeper = cluster.network, cluster.zookeeper
        if kind in _KEEPS_FROM_HEARING:
            brokers = [broker for broker in brokers if not broker.is_losing_session]
        if kind in _KEEPS_ALL_FROM_HEARING and any(each.is_losing_session for each in cluster.brokers.values()):
            return
        match kind:
            case FaultKind.CUT | FaultKind.ONE_WAY | FaultKind.RESET:
                if len(brokers) < 2:
                    return
                one, other = (broker.machine.address for broker in brokers[:2])
                if kind is not FaultKind.RESET:
                    yield self._cut([(one, other)] if kind is FaultKind.ONE_WAY else [(one, other), (other, one)])
                elif network.reset_connections(one, other):
                    yield InjectedFault()
            case FaultKind.CLIENT_CUT | FaultKind.CLIENT_DEAF | FaultKind.CLIENT_KILL:
                client = cluster.clients[int(fault.whom[0].removeprefix("client-")) - 1]
                if client is None or not brokers:
                    return
                if kind is FaultKind.CLIENT_KILL:
                    alive = client.process.alive
                    client.kill()
                    yield InjectedFault([client.restart], lambda: alive)
                    return
                one, other = client.machine.address, brokers[0].machine.address
                yield self._cut([(other, one)] if kind is FaultKind.CLIENT_DEAF else [(one, other), (other, one)])
            case FaultKind.SLOW | FaultKind.LOSS:
                late = network.late
                slow = NetworkConditions((fault.amount * 200, fault.amount * 1000))
                network.conditions = slow if kind is FaultKind.SLOW else NetworkConditions(loss=fault.amount / 100)
                yield InjectedFault([self._calm], lambda: network.late > late)
            case FaultKind.ZOOKEEPER_STOP:
                cluster.in_zookeeper(zookeeper.stop)
                yield InjectedFault([partial(cluster.in_zookeeper, zookeeper.start)], self._met_any())
            case FaultKind.ZOOKEEPER_FREEZE:
                cluster.in_zookeeper(zookeeper.freeze)
                yield InjectedFault([partial(cluster.in_zookeeper, zookeeper.thaw)], self._met_any())
            case FaultKind.STRANGE:
                yield from self._write_strange_offsets()
            case FaultKind.ELECT:
                elections = self._admin_operations.elect()
                yield InjectedFault(bit=lambda: elections.bit)
            case FaultKind.REASSIGN:
                move = self._admin_operations.reassign(cluster.first, fault.amount)
                yield InjectedFault(bit=lambda: move.bit)
            case (
                FaultKind.CREATE
                | FaultKind.DELETE
                | FaultKind.MOVE
                | FaultKind.MOVE_OFFSETS
                | FaultKind.ALTER
                | FaultKind.ADD
            ):
                operation = self._start_operation(fault)
                yield InjectedFault(bit=lambda: operation.bit)
            case _:
                for broker in brokers:
                    yield from self._inject_into_broker(fault, broker)

    def _start_operation(self, fault: Fault) -> AdminOperation:
        """Start the administrator's operation of this fault, and return it."""
        admin_operations = self._admin_operations
        match fault.kind:
            case FaultKind.CREATE:
                return admin_operations.create(fault.amount)
            case FaultKind.DELETE:
                return admin_operations.delete()
            case FaultKind.MOVE:
                return admin_operations.move(fault.amount)
            case FaultKind.MOVE_OFFSETS:
                return admin_operations.move_offsets(fault.amount)
            case FaultKind.ALTER:
                return admin_operations.alter()
            case _:
                return admin_operations.add(self._cluster.first.topic)

    def _met_any(self) -> Callable[[], bool]:
        met = [_met(broker) for broker in self._cluster.brokers.values()]
        return lambda: any(each() for each in met)

    def _inject_into_broker(self, fault: Fault, broker: SimulatedBroker) -> Iterator[InjectedFault]:
        """Inject a fault of one broker and yield its effect; nothing if the broker is in no state for the fault."""
        match fault.kind:
            case FaultKind.KILL if broker.runs:
                broker.kill()
                yield InjectedFault([broker.start])
            case FaultKind.STOP if broker.runs:
                broker.end()
                yield InjectedFault([broker.start])
            case FaultKind.POWER if broker.machine.up:
                fate = self._durability.fate(broker.broker_id, self._cluster.rng)
                broker.crash(fate)
                also = LAST_WHOLE if fate is KEPT else ""
                yield InjectedFault([broker.power_up, broker.start], lambda: fate is not KEPT, also)
            case FaultKind.TORN if broker.runs:
                yield self._tear(fault, broker)
            case FaultKind.HOLD if broker.runs:
                broker.hold()
                yield InjectedFault([broker.resume])
            case FaultKind.ISOLATE:
                one = broker.machine.address
                others = [each.machine.address for each in self._cluster.brokers.values() if each is not broker]
                yield self._cut([direction for other in others for direction in ((one, other), (other, one))])
            case FaultKind.ZOOKEEPER_CUT:
                broker.cut_from_zookeeper(True)
                yield InjectedFault([partial(broker.cut_from_zookeeper, False)], _met(broker))
            case FaultKind.ZOOKEEPER_BREAK if broker.runs:
                broker.break_zookeeper_connection()
                yield InjectedFault()
            case FaultKind.ZOOKEEPER_SLOW:
                broker.slow_zookeeper(fault.amount)
                yield InjectedFault([partial(broker.slow_zookeeper, 0)], _met(broker))
            case FaultKind.EXPIRE if broker.may_lose_session:
                broker.expire_session()
                yield InjectedFault()
            case FaultKind.CLOCK:
                broker.clock.jump(fault.amount)
                yield InjectedFault(bit=_met(broker))
            case FaultKind.CLOCK_RATE:
                broker.clock.run_at(fault.amount / 100)
                yield InjectedFault([partial(broker.clock.run_at, 1.0)], _met(broker))
            case FaultKind.DISK_SLOW:
                slowed = broker.disk.slowed
                broker.disk.slow(write_ms=fault.amount / 10, sync_ms=fault.amount, for_ms=fault.for_ms)
                yield InjectedFault([broker.disk.heal], lambda: broker.disk.slowed > slowed)
            case FaultKind.DISK_WRITE | FaultKind.DISK_SYNC | FaultKind.DISK_FULL:
                refused = broker.disk.refused
                broker.disk.fail(_DISK_FAULTS[fault.kind])
                yield InjectedFault([broker.disk.heal, broker.start], lambda: broker.disk.refused > refused)
            case FaultKind.FLIP:
                yield from self._flip(broker)
            case FaultKind.MOVE_DIR:
                move = self._admin_operations.move_dir(broker.broker_id)
                yield InjectedFault(bit=lambda: move.bit)

    def _tear(self, fault: Fault, broker: SimulatedBroker) -> InjectedFault:
        """Let the broker's next write to a log kill the broker's process, with part of its bytes written."""
        life = broker.lives
        torn: list[bool] = []

        def cut() -> None:
            torn.append(True)
            broker.kill()

        broker.disk.tear(fault.amount / 100, cut)
        return InjectedFault([broker.disk.heal, broker.start], lambda: bool(torn) and broker.lives >= life)

    def _flip(self, broker: SimulatedBroker) -> Iterator[InjectedFault]:
        """Flip one bit in a closed segment, and let a client read that segment; without a closed segment yield nothing.

        If the replica is the last undamaged one, flip the bit back at once and yield nothing. If the replica has become
        that before the broker starts again, flip the bit back before the start.
        """

        def led(directory: Path) -> bool:
            tp = partition_named(directory.name)
            return tp is not None and (replica := broker.replica(tp)) is not None and replica.partition.is_leader

        found = broker.disk.flip_closed(self._cluster.rng, led)
        if found is None:
            return
        path, following, heal = found
        tp, begin, end = partition_named(path.parent.name), offset_of(path.stem), offset_of(following.stem)
        assert tp is not None and begin is not None and end is not None
        # If the only good copy is opened with damage, it stays offline until an administrator elects another replica.
        if self._durability.is_last(broker.broker_id, tp):
            heal()
            return
        self._durability.damaged(broker.broker_id, tp)

        def spare() -> None:
            if self._durability.is_last(broker.broker_id, tp):
                heal()
            else:
                self._durability.opens_damaged(broker.broker_id, tp)

        broker.before_start[path] = spare
        reading = self._admin_operations.read(tp, begin, end)
        repaired = partial(self._durability.repaired, broker.broker_id, tp)
        yield InjectedFault([heal, repaired, lambda: broker.before_start.pop(path, None)], lambda: reading.bit)

    def _write_strange_offsets(self) -> Iterator[InjectedFault]:
        """Append strange offsets to every partition of __consumer_offsets that has a leader.

        The effect of each is that the log accepts them.
        """
        for broker in self._cluster.brokers.values():
            for tp in OFFSETS_TPS:
                if (replica := broker.replica(tp)) is not None and replica.partition.is_leader:
                    taken: list[bool] = []
                    broker.append(tp, _STRANGE, taken.append)
                    yield InjectedFault(bit=partial(any, taken))

    def _cut(self, directions: list[tuple[str, str]]) -> InjectedFault:
        """Cut the network in these directions, each (source, target). The fault has an effect if a message meets the
        cut.
        """
        network = self._cluster.network
        before = {direction: network.stalled[direction] for direction in directions}
        for source, target in directions:
            network.cut(source, target)
        network.changed()
        return InjectedFault(
            [partial(self._rejoin, directions)],
            lambda: any(network.stalled[direction] > before[direction] for direction in directions),
        )

    def _rejoin(self, directions: list[tuple[str, str]]) -> None:
        for source, target in directions:
            self._cluster.network.heal_between(source, target)
        self._cluster.network.changed()

    def _calm(self) -> None:
        self._cluster.network.conditions = NetworkConditions()

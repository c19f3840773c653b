"""A small cluster in the in-memory ZooKeeper, on which one `ZkClient` operation runs while others interfere.

Broker 1 is the controller and owns topic `t`. The operation runs over a `FaultyStore`; the rivals have working
connections of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cluster.state import BrokerRegistration, ControllerLease, PartitionState, TopicAssignment, WriteState
from cluster.zookeeper import znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryZooKeeper
from cluster.zookeeper.store import Check, NodeStat, NoNodeError
from tests.cluster.faulty_store import FaultyStore
from tests.virtual_time import VirtualClock
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.listeners import BROKERS, CLIENTS

TP = TopicPartition("t", 0)
TOPIC = TopicAssignment("t", "AAAAAAAAAAAAAAAAAAAAAQ", {0: (1, 2), 1: (2, 1)}, {"retention.ms": "5"})
STATE = PartitionState(1, 0, (1, 2), 1)
BROKER = BrokerRegistration(3, {CLIENTS: Endpoint("h", 1), BROKERS: Endpoint("h", 2)})
MOVED = replace(BROKER, listeners={CLIENTS: Endpoint("elsewhere", 1), BROKERS: Endpoint("elsewhere", 2)})
#: Broker 3, as it registers after its machine went down.
SHORT = replace(BROKER, possibly_short=True)
GROUP = "g"

SESSION_TIMEOUT_MS = 1000


class Stage:
    """Owns the ensemble, the operation's client and the rivals' clients.

    tested    the `ZkClient` under test; its session owns the controller's lease
    other     a rival: another controller, or any other broker
    owner     the session that registers broker 3
    lease     the lease as the operation's caller knows it
    epoch     broker 3's epoch as the operation's caller knows it, −1 if broker 3 is not registered
    """

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper(VirtualClock(), SESSION_TIMEOUT_MS)
        self.inner = self.zookeeper.connect()
        self.store = FaultyStore(self.inner, self.look)
        self.tested = ZkClient(self.store, VirtualClock(), time_limit_ms=3000)
        self.other = ZkClient(self.zookeeper.connect(), VirtualClock())
        self.owner = ZkClient(self.zookeeper.connect(), VirtualClock())
        self.lease = ControllerLease(-1, 0, 0)
        self.epoch = -1
        self.notes: dict[str, object] = {}

    async def set_up(self) -> None:
        """Create the paths, the controller's lease, and topic `t` with the state of its first partition."""
        await self.other.ensure_paths()
        lease = await self.tested.try_become_controller(1, await self.other.read_controller())
        assert lease is not None
        self.lease = lease
        await self.make_topic()

    # --- what stands in ZooKeeper ----------------------------------------------------------------------------

    def look(self, path: str) -> NodeStat | None:
        try:
            return self.zookeeper.node(path).stat()
        except NoNodeError:
            return None

    def data(self, path: str) -> bytes | None:
        try:
            return self.zookeeper.node(path).data
        except NoNodeError:
            return None

    def known(self) -> Mapping[str, NodeStat]:
        """Return the stat of every node, as the operation's caller may know it when the operation begins."""
        found: dict[str, NodeStat] = {}
        paths = ["/"]
        while paths:
            path = paths.pop()
            node = self.zookeeper.node(path)
            found[path] = node.stat()
            paths += [f"{path.rstrip('/')}/{name}" for name in node.children]
        return found

    def effects_on(self, path: str) -> int:
        """Return how many transactions of the operation have changed this node."""
        return sum(
            any(each.path == path and not isinstance(each, Check) for each in transaction)
            for transaction in self.store.applied
        )

    async def fence(self) -> int:
        """Return the version on which a write of the current controller is conditional."""
        return (await self.other.read_controller()).epoch_version

    # --- what rivals do --------------------------------------------------------------------------------------

    async def depose(self) -> None:
        """Make broker 2 the controller."""
        lease = await self.other.read_controller()
        assert await self.other.try_become_controller(2, lease, replace_controller=not lease.unclaimed) is not None

    async def expire(self) -> None:
        """End the operation's session, and with it the lease."""
        self.zookeeper.expire(self.inner.session_id)

    async def make_topic(self, topic: TopicAssignment = TOPIC, state: PartitionState = STATE) -> None:
        fence = await self.fence()
        assert await self.other.create_topic(topic, fence)
        await self.other.write_state(WriteState(TopicPartition(topic.topic, 0), state, -1), fence)

    async def remove_topic(self, topic: str = "t") -> None:
        """Let the controller remove the topic, if it exists."""
        fence = await self.fence()
        await self.other.remove_some(topic, fence)

    async def remake_topic(self) -> None:
        """Replace topic `t` by another topic of the same name."""
        await self.remove_topic()
        await self.make_topic(replace(TOPIC, topic_id="AAAAAAAAAAAAAAAAAAAAAg", configs={}), replace(STATE, leader=2))

    async def register(self, registration: BrokerRegistration = SHORT) -> None:
        """Register broker 3 with its own session."""
        self.epoch = await self.owner.register_broker(registration)

    async def register_anew(self) -> None:
        """Replace broker 3's registration by one with another address."""
        self.zookeeper.expire(self.owner.store.session_id)
        self.owner = ZkClient(self.zookeeper.connect(), VirtualClock())
        await self.owner.register_broker(replace(MOVED, possibly_short=True))

    async def delete(self, path: str) -> None:
        """Delete a node as another client."""
        if self.look(path) is not None:
            await self.other.store.delete(path)

    async def overwrite(self, path: str, data: bytes) -> None:
        """Write a node as another client, on any version."""
        if self.look(path) is None:
            await self.other.store.create(path, data)
        else:
            await self.other.store.set(path, data)

    def registration(self) -> BrokerRegistration | None:
        """Return broker 3's current registration."""
        data, stat = self.data(znodes.broker_path(3)), self.look(znodes.broker_path(3))
        return None if data is None or stat is None else znodes.decode_broker(3, data, stat.czxid)

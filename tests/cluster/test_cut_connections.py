"""A selection of the fault table on a real ZooKeeper, whose connection is cut before or after a write."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.state import ControllerLease
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.kazoo_store import ZooKeeperStore
from cluster.zookeeper.store import NodeStat, NoNodeError, Store
from tests.cluster.cutting_relay import CuttingRelay
from tests.cluster.faulty_store import Loss
from tests.cluster.stores import TIMEOUT_MS
from tests.cluster.test_store import until_later_than
from tests.cluster.zk_client_stage import Stage
from tests.cluster.zk_client_table import WRITES, Row
from tidelog.clock import SystemClock
from tidelog.errors import TidelogError
from tidelog.local.zookeeper import EmbeddedZooKeeper

SELECTION = (
    "ZkClient.next_producer_id_block",
    "ZkClient.register_broker",
    "ZkClient.unregister_broker",
    "ZkClient.clear_possibly_short",
    "ZkClient.try_become_controller",
    "StateZnodes.change_isr",
    "StateZnodes.write_state",
    "StateZnodes.write_states",
    "TopicZnodes.create_topic",
    "TopicZnodes.write_assignment",
    "TopicConfigs.change",
    "ZooKeeperOffsets.commit",
)
_chroots = itertools.count()


@dataclass
class ReadNode:
    """A node as read from the real server."""

    data: bytes
    found: NodeStat

    def stat(self) -> NodeStat:
        return self.found


@dataclass
class Reading:
    """The nodes that a test has read, instead of the twin's tree."""

    nodes: dict[str, ReadNode] = field(default_factory=dict)

    def node(self, path: str) -> ReadNode:
        if path not in self.nodes:
            raise NoNodeError(path)
        return self.nodes[path]


class RealStage(Stage):
    """The stage of the table on a real ZooKeeper, which the operation's client reaches through a relay."""

    def __init__(self, tested: Store, other: Store, owner: Store) -> None:
        self.zookeeper: Any = Reading()
        self.inner: Any = tested
        self.tested = ZkClient(tested, SystemClock(), time_limit_ms=10_000)
        self.other = ZkClient(other, SystemClock())
        self.owner = ZkClient(owner, SystemClock())
        self.lease = ControllerLease(-1, 0, 0)
        self.epoch = -1
        self.notes = {}

    async def read(self, path: str = "/") -> None:
        """Reads the whole tree."""
        node = await self.other.store.get(path)
        self.zookeeper.nodes[path] = ReadNode(node.data, node.stat)
        for name in await self.other.store.children(path):
            await self.read(f"{path.rstrip('/')}/{name}")

    async def read_anew(self) -> dict[str, NodeStat]:
        self.zookeeper.nodes.clear()
        await self.read()
        return {path: node.found for path, node in self.zookeeper.nodes.items()}


@pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.value)
@pytest.mark.parametrize("name", SELECTION)
async def test_write_over_a_connection_that_is_cut_ends_as_the_table_says(
    zookeeper: EmbeddedZooKeeper, name: str, loss: Loss
) -> None:
    row = next(row for row in WRITES if row.name == name)
    relay, chroot = CuttingRelay(zookeeper.port), f"/cut-{next(_chroots)}"
    async with relay.listening() as hosts:
        stores = [
            await ZooKeeperStore.open(f"{each}{chroot}", session_timeout_ms=TIMEOUT_MS, clock=SystemClock())
            for each in (hosts, zookeeper.hosts, zookeeper.hosts)
        ]
        stage = RealStage(*stores)
        await stage.set_up()
        if row.arrange is not None:
            await row.arrange(stage)
        before = await stage.read_anew()
        relay.cuts = loss
        result = await outcome(row, stage)
        assert relay.cuts is None, "the connection was cut"
        after = await stage.read_anew()
        required = row.request_lost if loss is Loss.REQUEST else row.answer_lost
        assert required.fits(stage, result), f"{result!r}, not {required}"
        assert (before.get(row.effect) != after.get(row.effect)) == (required.effects > 0)
        for store in stores:
            await store.close()


async def test_session_is_confirmed_from_when_its_request_was_sent(
    zookeeper: EmbeddedZooKeeper,
) -> None:
    relay, clock = CuttingRelay(zookeeper.port), SystemClock()
    async with relay.listening() as hosts:
        store = await ZooKeeperStore.open(f"{hosts}/held", session_timeout_ms=TIMEOUT_MS, clock=clock)
        relay.hold.clear()
        begun_ms = clock.monotonic_ms()
        writing = asyncio.ensure_future(store.create("/late"))
        await until_later_than(clock, begun_ms + 100)
        answered_ms = clock.monotonic_ms()
        relay.hold.set()
        await writing
        assert begun_ms <= store.confirmed_at_ms < answered_ms
        await store.close()


async def outcome(row: Row, stage: Stage) -> Any:
    """Return the operation's result or error."""
    try:
        return await row.call(stage)
    except TidelogError as error:
        return error

"""A whole broker that stops while ZooKeeper is silent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from cluster.memory import MemoryZooKeeper
from cluster.store import Store
from node.broker import Broker
from node.purgatory import DelayedOperation
from node.router import Router
from node.settings import BrokerSettings
from node.watchdog import Guard
from node.world import RealWorld
from tidelog.errors import StorageError
from tidelog.model import TopicPartition

WAIT_MS = 300


class Idle:
    """This loop may hang: the tests beside it are not to end with it."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class World(RealWorld):
    """With ZooKeeper's twin, and doors wherever there is room."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryZooKeeper(session_timeout_ms=20_000).connect()
        self.listen = lambda endpoint, *told: Router(replace(endpoint, port=0), *told)

    async def open_store(self, settings: BrokerSettings) -> Store:
        await self.store.until_connected()
        return self.store

    def guard(self, timeout_ms: int) -> Guard:
        return Idle()


class Fetch(DelayedOperation):
    """It waits for records that do not come."""

    def __init__(self, deadline_ms: int) -> None:
        super().__init__(deadline_ms)
        self.answered = asyncio.Event()

    def is_satisfied(self) -> bool:
        return False

    def on_complete(self) -> None:
        self.answered.set()


async def test_who_waits_at_a_broker_that_stops_is_answered_in_time_though_zookeeper_is_silent(tmp_path: Path) -> None:
    world = World()
    settings = BrokerSettings(
        broker_id=1,
        log_dirs=(str(tmp_path),),
        zookeeper="127.0.0.1:1",
        listeners=("TIDELOG://127.0.0.1:1", "REPLICATION://127.0.0.1:2"),
        zookeeper_session_timeout_ms=20_000,
    )
    broker = Broker(settings, world)
    await broker.start()
    broker.end(StorageError("so that it stops without handing over"))
    world.store.way.cut()
    fetch = Fetch(world.clock.monotonic_ms() + WAIT_MS)
    broker.replicas.waiting.consumer_fetches.try_complete_else_watch(fetch, [TopicPartition("t", 0)])  # type: ignore[arg-type]
    stopping, answered = asyncio.create_task(broker.stop()), asyncio.create_task(fetch.answered.wait())
    await asyncio.wait((stopping, answered), return_when=asyncio.FIRST_COMPLETED)
    assert broker.replicas.waiting.consumer_fetches.expired == 1, "its own time was over, and not the broker's"
    assert not stopping.done()
    world.store.way.heal()
    await stopping

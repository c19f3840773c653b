"""A whole broker that stops: its answers meanwhile, and the requests that wait at it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.state import PartitionState, VersionedState
from cluster.zookeeper.in_memory import MemoryZooKeeper
from cluster.zookeeper.store import Store
from node.controller.controller_client import ControllerClient
from node.kafka.server_socket import serve_tcp
from node.net.zeromq.router import Router
from node.process.broker import Broker
from node.process.environment import RealEnvironment
from node.process.watchdog import Guard
from node.purgatory.purgatory import DelayedOperation
from node.replication.log_maintenance import MaintenanceLoop
from node.settings.broker_settings import BrokerSettings
from tidelog.errors import StorageError
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import ControlledShutdownResponse, TopicInfo
from tidelog.protocol.messages import DescribePartition

WAIT_MS = 300


class Idle:
    """A guard that ends no process, because the loop of a test may hang."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class BrokerEnvironment(RealEnvironment):
    """An environment with the in-memory ZooKeeper, whose listeners bind free ports."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryZooKeeper(session_timeout_ms=20_000).connect()
        self.listen = lambda endpoint, *callbacks: Router(replace(endpoint, port=0), *callbacks)
        self.serve = lambda endpoint, protocol: serve_tcp(replace(endpoint, port=0), protocol)

    async def open_store(self, settings: BrokerSettings) -> Store:
        await self.store.until_connected()
        return self.store

    def guard(self, timeout_ms: int) -> Guard:
        return Idle()


class Fetch(DelayedOperation):
    """A delayed fetch that waits for records that do not come."""

    def __init__(self, deadline_ms: int) -> None:
        super().__init__(deadline_ms)
        self.answered = asyncio.Event()

    def is_satisfied(self) -> bool:
        return False

    def on_complete(self) -> None:
        self.answered.set()


def settings_in(directory: Path) -> BrokerSettings:
    return BrokerSettings(
        broker_id=1,
        log_dirs=(str(directory),),
        zookeeper="127.0.0.1:1",
        listeners=("KAFKA://127.0.0.1:1", "REPLICATION://127.0.0.1:2"),
        zookeeper_session_timeout_ms=20_000,
    )


async def test_stopping_broker_answers_in_time_without_zookeeper(tmp_path: Path) -> None:
    environment = BrokerEnvironment()
    broker = Broker(settings_in(tmp_path), environment)
    await broker.start()
    broker.end(StorageError("so that it stops without handing over"))
    environment.store.network.cut()
    fetch = Fetch(environment.clock.monotonic_ms() + WAIT_MS)
    broker.replicas.purgatories.consumer_fetches.try_complete_else_watch(fetch, [TopicPartition("t", 0)])  # type: ignore[arg-type]
    stopping, answered = asyncio.create_task(broker.stop()), asyncio.create_task(fetch.answered.wait())
    await asyncio.wait((stopping, answered), return_when=asyncio.FIRST_COMPLETED)
    assert broker.replicas.purgatories.consumer_fetches.expired == 1, "its own time was over, and not the broker's"
    assert not stopping.done()
    environment.store.network.heal()
    await stopping


async def lead(broker: Broker, *tps: TopicPartition) -> None:
    """Make the broker lead, as the controller would."""
    for tp in tps:
        replica = await broker.replicas.host(tp, TopicInfo(tp.topic, "AAAAAAAAAAAAAAAAAAAAAQ", {}, 2), in_sync=True)
        state = VersionedState(PartitionState(1, 0, (1,), 1), 0)
        replica.partition.make_leader(state, (1, 2), {}, 0, 0)


@pytest.mark.parametrize("outcome", ["in time", "never"])
async def test_broker_in_controlled_shutdown_reports_no_log_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    """Other brokers may lead before this broker learns of it, for example because its own disk delays the request."""
    broker = Broker(replace(settings_in(tmp_path), controlled_shutdown_timeout_ms=50), BrokerEnvironment())
    moved, kept = TopicPartition("t", 0), TopicPartition("t", 1)
    cut_off: list[bool] = []
    led: list[list[TopicPartition]] = []

    async def ask(line: object, request: object, *_: object) -> ControlledShutdownResponse:
        cut_off.append(broker.replicas.cut_off and broker.replicas.may_be_deposed)
        if outcome == "never":
            await asyncio.Event().wait()
        return ControlledShutdownResponse(0, (DescribePartition(*kept),))

    async def stop(housekeeping: MaintenanceLoop) -> None:
        led.append(broker.replicas.led())
        cut_off.append(broker.replicas.cut_off and broker.replicas.may_be_deposed)

    monkeypatch.setattr(ControllerClient, "ask", ask)
    monkeypatch.setattr(MaintenanceLoop, "stop", stop)
    await broker.start()
    await lead(broker, moved, kept)
    assert not broker.replicas.cut_off and not broker.replicas.may_be_deposed
    await broker.stop()
    assert cut_off == [True, True]
    assert led == [[kept] if outcome == "in time" else [moved, kept]]
    assert broker.replicas.led() == []

"""A broker whose advertised addresses change while it runs, as the controller and the other brokers see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass

import pytest

from cluster.state import BrokerRegistration
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryZooKeeper
from node.controller.controller_elector import ControllerElector
from node.controller.controller_term import ControllerTerm
from node.controller.failure_detector import FenceLimiter, ProbeOutcome
from node.net.identity import Identity
from node.net.server import Server
from node.net.zeromq.connection import Connection
from node.process.advertised_addresses import AdvertisedAddresses
from node.settings.dynamic_settings import DynamicSettings
from tests.node.controller_cluster import TP, Broker, Cluster, run
from tests.node.topic_settings import broker_settings
from tests.port_forward import PortForward
from tidelog.clock import SystemClock
from tidelog.errors import DisconnectedError, InvalidConfigError
from tidelog.model import Endpoint
from tidelog.protocol.control_messages import UpdateMetadataRequest
from tidelog.protocol.listeners import BROKERS, CLIENTS

HOST = "127.0.0.1"


def addresses(replication_port: int) -> dict[str, Endpoint]:
    return {CLIENTS: Endpoint("host-2", 9092), BROKERS: Endpoint(HOST, replication_port)}


def known_at(broker: Broker, other: int) -> Endpoint | None:
    """Return the replication endpoint of another broker in the last metadata that this broker has received."""
    metadata = [each for each in broker.requests if isinstance(each, UpdateMetadataRequest)]
    return next(each.replication_endpoint for each in metadata[-1].live_brokers if each.broker_id == other)


@pytest.mark.parametrize("moved", [1, 2], ids=["the controller", "another broker"])
def test_broker_at_a_changed_address_outlives_the_end_of_the_old_one(moved: int) -> None:
    async def story(cluster: Cluster) -> None:
        broker = cluster.brokers[moved]
        epoch, bound = broker.identity.broker_epoch, broker.server.endpoint.port
        with closing(PortForward(bound)) as first, closing(PortForward(bound)) as second:
            for forward in (first, second):
                broker.registration.change_addresses(addresses(forward.port))
                at = Endpoint(HOST, forward.port)
                await cluster.until(lambda at=at: {known_at(each, moved) for each in cluster.brokers.values()} == {at})
                # The controller's channel, and of the controller also the connections by which others notice its end.
                await cluster.until(lambda forward=forward: forward.accepted > 0)
            first.close()
            await asyncio.sleep(0.5)  # the time of a probe, and of the fence that would follow
            await cluster.create(assignment={0: (moved, 3)})
            assert (broker.identity.broker_epoch, (await cluster.state()).leader) == (epoch, moved)
            assert broker.hosted[TP].leader_epoch == 0
            assert cluster.controller.controller_epoch == 1

    run(story)


async def test_controller_that_moved_away_is_not_replaced() -> None:
    connects = asyncio.Semaphore(0)
    held: list[asyncio.StreamWriter] = []

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        connects.release()

    old, new = [await asyncio.start_server(hold, HOST, 0) for _ in range(2)]
    zookeeper, clock = MemoryZooKeeper(session_timeout_ms=60_000), SystemClock()
    other, me = (ZkClient(zookeeper.connect(), clock, time_limit_ms=2000) for _ in range(2))
    await other.ensure_paths()
    epoch = await other.register_broker(BrokerRegistration(2, addresses(_port(old))))
    lease = await other.try_become_controller(2, await other.read_controller())
    elector = ControllerElector(broker_settings(1), me, clock, Identity("", 1, broker_epoch=1))
    await elector.start()
    await connects.acquire()
    await other.change_addresses(2, epoch, addresses(_port(new)))
    old.close()
    held.pop().transport.abort()
    await connects.acquire()
    assert await me.read_controller() == lease
    await elector.stop()
    new.close()
    for writer in held:
        writer.transport.abort()


async def test_new_controller_does_not_fence_the_old_one_for_its_old_address() -> None:
    async def refuse(_: Endpoint) -> Connection:
        raise DisconnectedError("this test has no network")

    async def accept(_: Endpoint) -> ProbeOutcome:
        return ProbeOutcome.ACCEPTED

    zookeeper, clock = MemoryZooKeeper(session_timeout_ms=60_000), SystemClock()
    other, me = (ZkClient(zookeeper.connect(), clock, time_limit_ms=2000) for _ in range(2))
    await other.ensure_paths()
    epoch = await other.register_broker(BrokerRegistration(2, addresses(1)))
    refused = await me.read_broker(2)
    await other.change_addresses(2, epoch, addresses(2))
    lease = await me.try_become_controller(1, await me.read_controller())
    assert lease is not None
    term = ControllerTerm(lease, me, clock, FenceLimiter(60_000), refuse, refused=refused, probe=accept)
    running = asyncio.create_task(term.run())
    async with asyncio.timeout(10):
        while not (term.ended or term.controller.context.brokers):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await me.is_registered(2, epoch)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


# --- which addresses a broker accepts --------------------------------------------------------------------------


@dataclass
class Stage:
    """Broker 1, which serves at its replication endpoint, and broker 2, which is only registered.

    port     where broker 1 serves
    checks   the addresses of broker 1
    """

    port: int
    settings: DynamicSettings
    checks: AdvertisedAddresses

    async def check(self, text: str) -> None:
        await self.checks.check(self.settings.check({"advertised.listeners": text}))


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    clock = SystemClock()
    zk_client = ZkClient(MemoryZooKeeper().connect(), clock)
    await zk_client.ensure_paths()
    await zk_client.register_broker(
        BrokerRegistration(2, {CLIENTS: Endpoint("host-2", 9092), BROKERS: Endpoint("host-2", 9601)})
    )
    identity = Identity("c", 1, 10)
    server = Server(Endpoint(HOST, 0), identity, lambda *_: None, clock)
    server.start()
    port = server.endpoint.port
    listeners = ("KAFKA://127.0.0.1:9092", f"REPLICATION://127.0.0.1:{port}", "KAFKA_B://127.0.0.1:9192")
    settings = DynamicSettings(broker_settings(1, listeners=listeners))
    try:
        yield Stage(port, settings, AdvertisedAddresses(settings, zk_client, identity))
    finally:
        server.stop()
        await zk_client.store.close()


@pytest.fixture
def forward_to() -> Iterator[list[PortForward]]:
    made: list[PortForward] = []
    yield made
    for each in made:
        each.close()


async def test_addresses_of_clients_are_not_tried() -> None:
    async with staged() as stage:
        await stage.check("KAFKA://nowhere.invalid:9092,KAFKA_B://nowhere.invalid:9192")


async def test_replication_address_must_lead_to_the_broker_itself(forward_to: list[PortForward]) -> None:
    async with staged() as stage:
        second = Server(Endpoint(HOST, 0), Identity("c", 3, 11), lambda *_: None, SystemClock())
        second.start()
        forward_to += [PortForward(stage.port), PortForward(second.endpoint.port), PortForward(stage.port)]
        here, elsewhere, gone = forward_to
        gone.close()
        await stage.check(f"REPLICATION://127.0.0.1:{here.port}")
        with pytest.raises(InvalidConfigError, match=r"REPLICATION://.*: broker 3 answers there, not this broker"):
            await stage.check(f"REPLICATION://127.0.0.1:{elsewhere.port}")
        with pytest.raises(InvalidConfigError, match=r"REPLICATION://.*: this broker does not reach itself there: "):
            await stage.check(f"REPLICATION://127.0.0.1:{gone.port}")
        second.stop()


async def test_address_of_another_broker_is_refused() -> None:
    async with staged() as stage:
        with pytest.raises(
            InvalidConfigError, match=r"advertised\.listeners: broker 2 already has the address of KAFKA"
        ):
            await stage.check("KAFKA://host-2:9092")

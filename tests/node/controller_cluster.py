"""Controllers with real sockets, the in-memory ZooKeeper, and brokers that only record the controller's requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from cluster.state import BrokerRegistration, PartitionState
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryStore, MemoryZooKeeper
from cluster.zookeeper.store import NoNodeError
from node.controller.controller_elector import ControllerElector
from node.net.identity import Identity
from node.net.server import RequestContext, Server
from node.process.registration import Registration
from node.settings.broker_settings import BrokerSettings
from tidelog.clock import SystemClock
from tidelog.errors import IneligibleReplicaError, StorageError
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.control_messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LogEndAnswer,
    LogEndsRequest,
    LogEndsResponse,
    PartitionOutcome,
    PartitionStateMessage,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tidelog.protocol.listeners import BROKERS, CLIENTS
from tidelog.protocol.messages import CreateTopicsRequest, NewTopic, Request, Response

SESSION_TIMEOUT_MS = 10_000
CLUSTER_ID = "a-cluster"
TP = TopicPartition("t", 0)


class SkippingClock(SystemClock):
    """A clock that a test can advance."""

    skipped_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.skipped_ms


class Broker:
    """A broker without replicas, which only records the states that the controller sends."""

    def __init__(self, zookeeper: MemoryZooKeeper, broker_id: int, port: int = 0, **settings: Any) -> None:
        self.broker_id = broker_id
        self.store: MemoryStore = zookeeper.connect()
        self.clock = SystemClock()
        self.zk_client = ZkClient(self.store, self.clock, time_limit_ms=2000)
        self.identity = Identity(CLUSTER_ID, broker_id)
        self.server = Server(Endpoint("127.0.0.1", port), self.identity, self._answer, self.clock)
        self.hosted: dict[TopicPartition, PartitionStateMessage] = {}
        self.metadata: dict[TopicPartition, PartitionStateMessage] = {}
        self.live: tuple[int, ...] = ()
        self.requests: list[Request] = []
        self.deaf = False
        self.offline: set[TopicPartition] = set()
        self.with_loss: set[TopicPartition] = set()
        self.log_ends: dict[TopicPartition, LogEndAnswer] = {}
        self.settings = BrokerSettings(
            broker_id=broker_id,
            log_dirs=("unused",),
            zookeeper="127.0.0.1:1",
            zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
            default_replication_factor=3,
            **settings,
        )

    async def start(self, previous_session: int = 0) -> None:
        self.server.start()
        await self.zk_client.ensure_paths()
        endpoint = self.server.endpoint
        self.registration = Registration(
            self.zk_client,
            BrokerRegistration(
                self.broker_id,
                {CLIENTS: Endpoint("127.0.0.1", 1), BROKERS: endpoint},
                rack=self.settings.broker_rack or None,
            ),
            previous_session=previous_session,
            on_lost=lambda: setattr(self.identity, "broker_epoch", -1),
            on_registered=lambda epoch: setattr(self.identity, "broker_epoch", epoch),
        )
        self.identity.broker_epoch = await self.registration.start()
        self.elector = ControllerElector(
            self.settings,
            self.zk_client,
            self.clock,
            self.identity,
            rng=random.Random(1),
        )
        await self.elector.start()

    async def stop(self) -> None:
        """Stop as on SIGTERM, after the controlled shutdown."""
        await self.elector.stop()
        await self.registration.stop()
        self.server.stop()
        await self.store.close()

    async def kill(self) -> None:
        """Stop as on SIGKILL: the listener closes at once, and the session stays until it expires."""
        self.server.stop()
        self.store.kill()
        await self.elector.stop()
        await self.registration.stop()

    async def reopen(self) -> None:
        """Break all connections, and listen at the same port again as soon as the library has released it."""
        endpoint = self.server.endpoint
        self.server.stop()
        while True:
            self.server = Server(endpoint, self.identity, self._answer, self.clock)
            try:
                return self.server.start()
            except OSError:
                await asyncio.sleep(0.01)

    def _answer(self, request: Request, context: RequestContext) -> Response | None:
        self.requests.append(request)
        if self.deaf:
            return None
        match request:
            case LeaderAndIsrRequest(_, _, partitions):
                for message in partitions:
                    self.hosted[TopicPartition(message.topic, message.partition)] = message
                return LeaderAndIsrResponse(0, tuple(self._outcome(p) for p in partitions))
            case StopReplicaRequest(_, _, stops):
                for stop in stops:
                    self.hosted.pop(TopicPartition(stop.topic, stop.partition), None)
                return StopReplicaResponse(0, tuple(PartitionOutcome(p.topic, p.partition, 0) for p in stops))
            case UpdateMetadataRequest(_, _, live, partitions, _, deleted):
                self.live = tuple(broker.broker_id for broker in live)
                for message in partitions:
                    self.metadata[TopicPartition(message.topic, message.partition)] = message
                self.metadata = {tp: message for tp, message in self.metadata.items() if tp.topic not in deleted}
                return UpdateMetadataResponse(0)
            case LogEndsRequest(_, _, asked):
                return LogEndsResponse(0, tuple(self.log_ends[TopicPartition(p.topic, p.partition)] for p in asked))
        raise AssertionError(request)

    def _outcome(self, message: PartitionStateMessage) -> PartitionOutcome:
        tp = TopicPartition(message.topic, message.partition)
        code = StorageError.code if tp in self.offline else 0
        if tp in self.with_loss and self.broker_id in message.isr and not message.unclean:
            code = IneligibleReplicaError.code
        return PartitionOutcome(message.topic, message.partition, code)


class Cluster:
    """Brokers 1 to n and their ZooKeeper. `racks` has the racks of the brokers that have one."""

    def __init__(self, brokers: int = 3, racks: Mapping[int, str] | None = None, **settings: int) -> None:
        self.zookeeper = MemoryZooKeeper(session_timeout_ms=SESSION_TIMEOUT_MS)
        self.brokers = {
            number: Broker(self.zookeeper, number, broker_rack=(racks or {}).get(number, ""), **settings)
            for number in range(1, brokers + 1)
        }

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()
        await self.until(lambda: all(len(broker.live) == len(self.brokers) for broker in self.brokers.values()))

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.stop()

    @property
    def controller(self) -> ControllerElector:
        return next(b.elector for b in self.brokers.values() if b.elector.is_controller)

    async def state(self, tp: TopicPartition = TP) -> PartitionState:
        store = next(broker for broker in self.brokers.values() if broker.store.connected)
        found = await store.zk_client.read_state(tp)
        assert found is not None
        return found.state

    def exists(self, path: str) -> bool:
        try:
            self.zookeeper.node(path)
        except NoNodeError:
            return False
        return True

    async def create(self, name: str = "t", *, timeout_ms: int = 20_000, **options: Any) -> None:
        request = CreateTopicsRequest((NewTopic(name, **options),), timeout_ms=timeout_ms)
        (created,) = (await self.controller.topics.create_topics(request)).topics
        assert created.error_code == 0, created

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not _holds(condition):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (StopIteration, KeyError, AttributeError):
        return False


def run(
    story: Callable[[Cluster], Coroutine[Any, Any, None]],
    brokers: int = 3,
    racks: Mapping[int, str] | None = None,
    **settings: int,
) -> None:
    async def whole() -> None:
        cluster = Cluster(brokers, racks, **settings)
        await cluster.start()
        try:
            await story(cluster)
        finally:
            await cluster.stop()

    asyncio.run(asyncio.wait_for(whole(), 90))

"""A broker in memory: real replicas, fetchers and handlers over an in-memory log, network and ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeVar, cast

from cluster.state import PartitionState, VersionedState
from cluster.zookeeper.write_conflicts import StateConflict
from node.controller.partition_commands import PartitionCommands
from node.events.recorder import NO_EVENTS, Events
from node.groups.service import CoordinatorService
from node.handlers import Handlers
from node.handlers.admin import admin_handlers
from node.handlers.groups import group_handlers
from node.metadata.metadata_cache import MetadataCache
from node.net.server import RequestContext
from node.replication.fetching.replica_fetcher import FetchSettings
from node.replication.fetching.replica_fetchers import ReplicaFetchers
from node.replication.log_dir_moves import LogDirMoves
from node.replication.purgatories import Purgatories
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.runtime.rate_limit import THROTTLE_MEMORY_MS, RateLimit
from node.settings.dynamic_settings import DynamicSettings
from storage.log_manager import LogManager
from tests.node.client_requests import TP, values_of
from tests.node.memory_log import MemoryLog
from tests.node.memory_network import FIRST_PORT, LATENCY_S, MemoryConnection, MemoryNetwork
from tests.node.offsets_topic import MemoryOffsetsTopic, NoZooKeeperOffsets
from tests.node.topic_settings import MemoryBrokers, TopicSettings, broker_settings
from tests.storage.logs import UnsyncedFiles
from tests.virtual_time import VirtualClock
from tidelog.errors import NotControllerError, StorageError
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.control_messages import (
    BrokerInfo,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ListenerAddress,
)
from tidelog.protocol.listeners import BROKERS, CLIENTS
from tidelog.protocol.messages import (
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    Request,
    Response,
)

T = TypeVar("T")

#: The flush time of broker 1. The others have faster disks, so that leaders and followers wait for each other.
SLOWEST_FLUSH_S = 0.09


class MemoryStates:
    """The partition state znodes of an in-memory ZooKeeper."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, VersionedState] = {}
        self.notified: list[TopicPartition] = []
        self.log_dir_failures: list[int] = []

    async def change_isr(self, tp: TopicPartition, new: PartitionState, partition_epoch: int) -> int:
        await asyncio.sleep(LATENCY_S)
        actual = self.states.get(tp)
        if actual is None or actual.partition_epoch != partition_epoch:
            raise StateConflict(tp, actual)
        self.states[tp] = VersionedState(new, partition_epoch + 1)
        return partition_epoch + 1

    async def notify_isr_change(self, tps: Iterable[TopicPartition]) -> None:
        self.notified += tps

    async def notify_log_dir_failure(self, broker_id: int) -> None:
        self.log_dir_failures.append(broker_id)

    async def next_producer_id_block(self, broker_id: int) -> range:
        return range(1000 * broker_id, 1000 * broker_id + 3)


class NoController:
    """The controller part of a broker that is not the controller."""

    @property
    def topics(self) -> NoController:
        return self

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        code = NotControllerError.code
        return CreateTopicsResponse(tuple(CreatedTopic(topic.name, code) for topic in request.topics))

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(tuple(DeletedTopic(name, NotControllerError.code) for name in request.topics))

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        return ControlledShutdownResponse(NotControllerError.code)

    @property
    def partitions(self) -> PartitionCommands:
        raise NotControllerError("not the controller")


class Node:
    """One broker process. Its directory outlives it. With `threads`, logs are flushed on threads."""

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        directory: Any,
        network: MemoryNetwork,
        states: MemoryStates,
        max_lag_ms: int,
        *,
        threads: bool = False,
        events: Events = NO_EVENTS,
    ) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.directory = directory
        self.alive = True
        self.shutting_down = False
        self.storage_errors: list[StorageError] = []
        loop = asyncio.get_running_loop()
        clock = VirtualClock()
        self.metadata = MetadataCache("c")
        self.purgatories = Purgatories(loop.call_soon)

        async def opener(endpoint: Endpoint) -> MemoryConnection:
            return await network.open(self, endpoint)

        self.fetchers = ReplicaFetchers(
            FetchSettings(broker_id),
            opener,
            clock,
            throttle=RateLimit(lambda: self.settings.current.follower_replication_throttled_rate, THROTTLE_MEMORY_MS),
        )
        self.cut_off = False
        self.connected = True
        self.replicas = ReplicaManager(
            broker_id,
            logs=directory,
            isr_store=states,
            metadata=self.metadata,
            purgatories=self.purgatories,
            fetchers=self.fetchers,
            clock=clock,
            max_lag_ms=max_lag_ms,
            offload=_inline,
            offload_flush=None if threads else self._flush_slowly,
            on_storage_error=self.storage_errors.append,
            cut_off=lambda: self.cut_off,
            may_be_deposed=lambda: self.cut_off or not self.connected,
            events=events,
            leader_throttle=RateLimit(
                lambda: self.settings.current.leader_replication_throttled_rate, THROTTLE_MEMORY_MS
            ),
        )
        settings = broker_settings(broker_id, **network.group_settings)
        files = directory.files if isinstance(directory, LogManager) else UnsyncedFiles()
        self.settings = DynamicSettings(settings)
        self.moves = LogDirMoves(directory, self.replicas, files, self.settings, lambda tp: False)
        topic = MemoryOffsetsTopic()
        self.groups = CoordinatorService(
            self.replicas, settings, topic, topic.create, lambda: self.cut_off, Random(broker_id)
        )
        more = {
            **admin_handlers(self.replicas, MemoryBrokers(settings), TopicSettings(), self.moves),
            **group_handlers(self.groups, NoZooKeeperOffsets()),
        }
        self.handlers = Handlers(self.replicas, self.metadata, states, NoController(), more)
        self.groups.start()
        self._ticking = loop.create_task(self._tick(clock))

    @property
    def info(self) -> BrokerInfo:
        clients = ListenerAddress(CLIENTS, f"host-{self.broker_id}", 9092)
        brokers = ListenerAddress(BROKERS, "h", FIRST_PORT + self.broker_id)
        return BrokerInfo(self.broker_id, self.epoch, (brokers, clients), self.shutting_down)

    def replica(self, tp: TopicPartition = TP) -> Replica:
        found = self.replicas.get(tp)
        assert found is not None
        return found

    def log(self, tp: TopicPartition = TP) -> MemoryLog:
        return cast(MemoryLog, self.replica(tp).log)

    async def ask(
        self, request: Request, *, peer: bytes = b"client", sender_epoch: int = -1, deadline_ms: int = -1
    ) -> Any:
        """Send a request as a client, or as a broker if a `sender_epoch` is given. Return the response."""
        between_brokers = sender_epoch >= 0
        listener = BROKERS if between_brokers else CLIENTS
        context = RequestContext(peer, "test", sender_epoch, deadline_ms, between_brokers, listener)
        outcome = self.handlers.handle(request, context)
        return outcome if outcome is None or isinstance(outcome, Response) else await outcome

    async def fetch(
        self, request: FetchRequest, *, peer: bytes = b"client", sender_epoch: int = -1
    ) -> tuple[int, list[bytes], int]:
        """Return (error code, values from the fetch offset on, high watermark) of the first partition."""
        answer = (await self.ask(request, peer=peer, sender_epoch=sender_epoch)).partitions[0]
        values = values_of(answer.records or b"", request.partitions[0].fetch_offset)
        return answer.error_code, values, answer.high_watermark

    async def look_up(self, timestamp: int, *, replica_id: int = -1, epoch: int = -1) -> tuple[int, int, int]:
        """Return (error code, offset, timestamp)."""
        request = ListOffsetsRequest((ListOffsetsPartition(TP.topic, TP.partition, timestamp, epoch),), replica_id)
        answer = (await self.ask(request, sender_epoch=1 if replica_id >= 0 else -1)).partitions[0]
        return answer.error_code, answer.offset, answer.timestamp

    async def _flush_slowly(self, flush: Callable[[], None]) -> None:
        await asyncio.sleep(SLOWEST_FLUSH_S / self.broker_id**2)
        if not self.alive:
            await asyncio.Event().wait()  # a killed process never completes
        flush()

    async def stop(self) -> None:
        self.alive = False
        self._ticking.cancel()
        self.groups.stop()
        await self.fetchers.close()

    async def _tick(self, clock: VirtualClock) -> None:
        while True:
            self.replicas.tick(clock.monotonic_ms())
            self.groups.tick(clock.monotonic_ms())
            await asyncio.sleep(0.01)


async def _inline(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    await asyncio.sleep(LATENCY_S)
    return function(*args, **kwargs)

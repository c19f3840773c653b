"""A scripted leader whose answers the test gives one by one. The follower is broker 2, the leader broker 1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from cluster.replication.partition import Partition
from cluster.state import PartitionState, VersionedState
from node.replication.fetching.replica_fetcher import FetchSettings
from node.replication.fetching.replica_fetchers import ReplicaFetchers
from node.replication.replica import Replica
from node.runtime.rate_limit import RateLimit
from storage.configs.log_config import LogConfig
from tests.node.client_requests import TP, batch_of
from tests.node.memory_log import MemoryLog
from tests.virtual_time import VirtualClock, until
from tidelog.errors import (
    DisconnectedError,
    StorageError,
    TimeoutError,
)
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.control_messages import BrokerInfo, ListenerAddress
from tidelog.protocol.listeners import BROKERS
from tidelog.protocol.messages import (
    ApiVersionsResponse,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    OffsetForLeaderEpochRequest,
    Request,
    Response,
)
from tidelog.records import assign_offsets

OTHER = TopicPartition("t", 1)
LEADER = BrokerInfo(1, 101, (ListenerAddress(BROKERS, "h", 101),))


class ScriptedLeader:
    """The leader's end of a connection. The test reads the requests and sets the answers."""

    def __init__(self, broker_id: int = 1) -> None:
        self.peer = ApiVersionsResponse(0, "c", broker_id, 101, 0, ())
        self.closed = False
        self.asked: list[tuple[Request, asyncio.Future[Response]]] = []

    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()
        timer = loop.call_later(timeout_ms / 1000, future.set_exception, TimeoutError("no answer"))
        future.add_done_callback(lambda _: timer.cancel())
        self.asked.append((request, future))
        return future

    def close(self) -> None:
        self.closed = True

    async def next_fetch(self) -> tuple[FetchRequest, asyncio.Future[Response]]:
        """Wait for the oldest unanswered fetch and return it."""
        await until(lambda: any(isinstance(r, FetchRequest) and not f.done() for r, f in self.asked))
        request, future = next((r, f) for r, f in self.asked if isinstance(r, FetchRequest) and not f.done())
        assert isinstance(request, FetchRequest)
        return request, future

    async def answer_fetch(self, **fields: object) -> None:
        """Answer the oldest unanswered fetch with `answer_to`."""
        request, answer = await self.next_fetch()
        answer.set_result(answer_to(request, **fields))

    def fetch(self, number: int) -> FetchRequest:
        """Return the request of that number, which must be a fetch."""
        request = self.asked[number][0]
        assert isinstance(request, FetchRequest)
        return request

    def look_up(self, number: int) -> OffsetForLeaderEpochRequest:
        """Return the request of that number, which must be an epoch request."""
        request = self.asked[number][0]
        assert isinstance(request, OffsetForLeaderEpochRequest)
        return request


class ScriptedFollower:
    """A follower's fetchers over scripted connections. `refuse` is the number of next connections that fail."""

    def __init__(self, throttle: RateLimit | None = None) -> None:
        self.connections: list[ScriptedLeader] = []
        self.connected_at: list[float] = []
        self.refuse = 0
        self.answering_broker = 1
        self.fetchers = ReplicaFetchers(FetchSettings(2), self._open, VirtualClock(), throttle=throttle)
        self.fetchers.brokers_changed({1: LEADER})

    async def __aenter__(self) -> ScriptedFollower:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.fetchers.close()

    async def _open(self, endpoint: Endpoint) -> ScriptedLeader:
        self.connected_at.append(asyncio.get_running_loop().time())
        assert endpoint == Endpoint("h", 101)
        if self.refuse:
            self.refuse -= 1
            raise DisconnectedError("refused")
        self.connections.append(ScriptedLeader(self.answering_broker))
        return self.connections[-1]

    async def begin(self, *replicas: Replica) -> ScriptedLeader:
        """Follow these replicas. Return the connection to their leader."""
        for replica in replicas:
            self.fetchers.follow(replica)
        return await self.connection()

    async def connection(self, number: int = 0) -> ScriptedLeader:
        await until(lambda: len(self.connections) > number)
        return self.connections[number]


def replica_of(
    tp: TopicPartition = TP,
    *values: bytes,
    epoch: int = 5,
    on_storage_error: Callable[[StorageError, TopicPartition], object] = lambda error, tp: None,
) -> Replica:
    log = MemoryLog("id", LogConfig())
    for offset, value in enumerate(values):
        log.append_as_follower(stored(value, offset=offset, epoch=3))
    replica = Replica("id", log, Partition(2, tp, max_lag_ms=1000), on_storage_error=on_storage_error)
    follow_in(replica, epoch)
    return replica


def follow_in(replica: Replica, epoch: int) -> None:
    replica.partition.make_follower(VersionedState(PartitionState(1, epoch, (1, 2), 1), epoch), (1, 2))


def stored(value: bytes, *, offset: int, epoch: int = 5) -> bytes:
    batch = bytearray(batch_of(value))
    assign_offsets(batch, 0, offset, epoch)
    return bytes(batch)


def answer_to(request: FetchRequest, **fields: object) -> FetchResponse:
    """Return empty answers for all named partitions, with `fields` for the first one."""
    answers = [FetchPartitionResponse(each.topic, each.partition, 0, 0, 0, 0) for each in request.partitions]
    if fields:
        answers[0] = replace(answers[0], **fields)  # type: ignore[arg-type]
    return FetchResponse(tuple(answers), session_id=7)


def named(request: FetchRequest) -> list[tuple[int, int]]:
    """Return (partition, fetch offset) of each named partition."""
    return [(each.partition, each.fetch_offset) for each in request.partitions]


def values(replica: Replica) -> list[bytes]:
    assert isinstance(replica.log, MemoryLog)
    return replica.log.values

"""A cluster in one process: real replicas, fetchers and handlers over a network, a ZooKeeper and a clock of its own.

The clock is the event loop's, and it jumps to the next timer whenever nobody has anything to do. So a test may let
minutes pass, and two runs of it do the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from cluster.coordination import StateConflict
from cluster.state import PartitionState, VersionedState
from node.conversation import FetchSettings
from node.delayed import Waiting
from node.fetchers import Fetchers
from node.handlers import Handlers
from node.metadata_cache import MetadataCache
from node.replica import Replica
from node.replicas import Replicas
from node.server import RequestContext
from storage.config import LogConfig
from tests.virtual_time import VirtualClock
from tidelog.control_messages import (
    BrokerInfo,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionStateMessage,
    TopicInfo,
)
from tidelog.errors import (
    BrokerError,
    DisconnectedError,
    InvalidRecordError,
    NotControllerError,
    OffsetOutOfRangeError,
    StorageError,
    TimeoutError,
)
from tidelog.messages import (
    ApiVersionsResponse,
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    Request,
    Response,
)
from tidelog.model import Buffer, Endpoint, TopicPartition
from tidelog.records import assign_offsets, decode_records, encode_batch, iter_headers, read_header

TP = TopicPartition("t", 0)
TOPIC_ID = "topic-id-1"
LATENCY_S = 0.001
T = TypeVar("T")


async def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it never came true"
        await asyncio.sleep(0.001)


# --- storage -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryAppend:
    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


@dataclass(frozen=True)
class MemoryFound:
    timestamp: int
    offset: int
    leader_epoch: int


class MemoryLog:
    """The dumb twin of `storage.log.Log`: a list of batches. `broken` makes every write fail."""

    def __init__(self, topic_id: str, config: LogConfig) -> None:
        self.topic_id = topic_id
        self.config = config
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.broken = False
        self._epochs: list[tuple[int, int]] = []

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1][0] if self._epochs else None

    @property
    def values(self) -> list[bytes]:
        return [record.value or b"" for batch in self.batches for record in decode_records(batch)]

    def assign_leader_epoch(self, epoch: int) -> None:
        if self.latest_epoch != epoch:
            self._epochs = [each for each in self._epochs if each[0] < epoch and each[1] < self.log_end_offset]
            self._epochs.append((epoch, self.log_end_offset))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        if not self._epochs or epoch > self._epochs[-1][0]:
            return None
        older = [known for known, _ in self._epochs if known <= epoch]
        later = [start for known, start in self._epochs if known > epoch]
        return (older[-1] if older else epoch), (later[0] if later else self.log_end_offset)

    def append_as_leader(self, batch: Buffer, leader_epoch: int, now_ms: int) -> MemoryAppend:
        self._write_or_raise()
        header = read_header(batch)
        if header.producer_id >= 0:
            for old in map(read_header, self.batches):
                if (old.producer_id, old.base_sequence) == (header.producer_id, header.base_sequence):
                    return MemoryAppend(old.base_offset, old.last_offset, duplicate=True)
        written = bytearray(batch)
        base_offset = self.log_end_offset
        assign_offsets(written, 0, base_offset, leader_epoch)
        self._take(bytes(written))
        return MemoryAppend(base_offset, self.log_end_offset - 1)

    def append_as_follower(self, batches: Buffer) -> None:
        self._write_or_raise()
        for position, header in iter_headers(batches):
            if header.base_offset != self.log_end_offset:
                raise InvalidRecordError(f"{header.base_offset} where {self.log_end_offset} is next")
            self.assign_leader_epoch(header.partition_leader_epoch)
            self._take(bytes(batches[position : position + header.size_bytes]))

    def read(self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True) -> bytes:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError
        taken = b""
        for batch in self.batches:
            header = read_header(batch)
            if header.last_offset < offset:
                continue
            if header.base_offset >= upper_bound:
                break
            if len(taken) + len(batch) > max_bytes and (taken or not at_least_one):
                break
            taken += batch
        return taken

    def offset_for_timestamp(self, timestamp: int, upper_bound: int) -> MemoryFound | None:
        return next((found for found in self._records(upper_bound) if found.timestamp >= timestamp), None)

    def offset_of_max_timestamp(self, upper_bound: int) -> MemoryFound | None:
        return max(self._records(upper_bound), key=lambda found: found.timestamp, default=None)

    def truncate_to(self, offset: int) -> None:
        self._write_or_raise()
        self.batches = [batch for batch in self.batches if read_header(batch).last_offset < offset]
        self.log_end_offset = read_header(self.batches[-1]).next_offset if self.batches else self.log_start_offset
        self._epochs = [each for each in self._epochs if each[1] < self.log_end_offset]

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.batches, self._epochs = [], []
        self.log_start_offset = self.log_end_offset = offset

    def raise_log_start(self, offset: int) -> bool:
        if offset <= self.log_start_offset:
            return False
        self.trim(offset)
        return True

    def trim(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if read_header(batch).base_offset >= offset]
        self.log_start_offset = offset

    def _records(self, upper_bound: int) -> Iterable[MemoryFound]:
        for batch in self.batches:
            epoch = read_header(batch).partition_leader_epoch
            for record in decode_records(batch):
                if record.offset < upper_bound:
                    yield MemoryFound(record.timestamp, record.offset, epoch)

    def _take(self, batch: bytes) -> None:
        self.batches.append(batch)
        self.log_end_offset = read_header(batch).next_offset

    def _write_or_raise(self) -> None:
        if self.broken:
            raise StorageError("no space left on device")


class MemoryLogs:
    """One directory; outlives the broker process that uses it."""

    def __init__(self) -> None:
        self.failure: StorageError | None = None
        self._logs: dict[TopicPartition, MemoryLog] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self.stray: list[MemoryLog] = []

    def logs(self) -> Mapping[TopicPartition, MemoryLog]:
        return self._logs

    @property
    def works(self) -> bool:
        return self.failure is None

    def report(self, tp: TopicPartition, error: StorageError) -> None:
        self.failure = self.failure or error

    def failed(self) -> list[tuple[Path, StorageError]]:
        return [(Path("disk"), self.failure)] if self.failure and self._logs else []

    def take_offline(self, path: Path, error: StorageError) -> list[TopicPartition]:
        gone, self._logs = list(self._logs), {}
        return gone

    def get_or_create(
        self, tp: TopicPartition, topic_id: str, config: LogConfig, *, in_sync: bool = False
    ) -> MemoryLog:
        if tp in self._logs and self._logs[tp].topic_id != topic_id:
            self.set_aside(tp)
        return self._logs.setdefault(tp, MemoryLog(topic_id, config))

    def set_aside(self, tp: TopicPartition) -> None:
        self.stray.append(self._logs.pop(tp))

    def delete(self, *tps: TopicPartition) -> None:
        for tp in tps:
            del self._logs[tp]

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        return dict(self._high_watermarks)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        self._high_watermarks = dict(high_watermarks)


# --- agreement -----------------------------------------------------------------------------------------------


class MemoryStates:
    """The state znodes."""

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


# --- network -------------------------------------------------------------------------------------------------


class MemoryConnection:
    """Requests and answers take `LATENCY_S` each way, in order; a cut network swallows them."""

    def __init__(self, cluster: MemoryCluster, source: Node, target: Node) -> None:
        self.peer = ApiVersionsResponse(0, "c", target.broker_id, target.epoch, 0, ())
        self.closed = False
        self._cluster = cluster
        self._source = source
        self._target = target
        self._sender_epoch = source.epoch
        self._in_flight: set[asyncio.Future[Response]] = set()
        self._name = cluster.next_name()
        cluster.connections.append(self)

    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()
        if self.closed:
            future.set_exception(DisconnectedError("closed"))
            return future
        self._in_flight.add(future)
        timer = loop.call_later(timeout_ms / 1000, self._fail, future, TimeoutError("no answer"))
        future.add_done_callback(lambda _: (self._in_flight.discard(future), timer.cancel()))
        loop.call_later(LATENCY_S, self._deliver, request, future)
        return future

    def close(self) -> None:
        self.closed = True
        for future in list(self._in_flight):
            self._fail(future, DisconnectedError("gone"))

    def concerns(self, broker_id: int) -> bool:
        return broker_id in (self._source.broker_id, self._target.broker_id)

    def _deliver(self, request: Request, future: asyncio.Future[Response]) -> None:
        if self.closed or not self._reaches(self._source, self._target) or not self._target.alive:
            return
        self._cluster.requests.append((self._source.broker_id, self._target.broker_id, request))
        context = RequestContext(self._name, "broker", self._sender_epoch, -1, True)
        try:
            outcome = self._target.handlers.handle(request, context)
        except BrokerError as error:
            self._answer(future, error)
            return
        if isinstance(outcome, Response):
            self._answer(future, outcome)
            return
        assert outcome is not None
        answer = asyncio.ensure_future(outcome)
        answer.add_done_callback(lambda done: self._answer(future, done.exception() or done.result()))

    def _answer(self, future: asyncio.Future[Response], answer: Response | BaseException) -> None:
        if self._reaches(self._target, self._source):
            asyncio.get_running_loop().call_later(LATENCY_S, self._arrive, future, answer)

    def _arrive(self, future: asyncio.Future[Response], answer: Response | BaseException) -> None:
        if isinstance(answer, BaseException):
            self._fail(future, answer)
        elif not future.done() and not self.closed:
            future.set_result(answer)

    def _reaches(self, source: Node, target: Node) -> bool:
        return (source.broker_id, target.broker_id) not in self._cluster.cuts

    @staticmethod
    def _fail(future: asyncio.Future[Response], error: BaseException) -> None:
        if not future.done():
            future.set_exception(error)
            future.exception()  # seen: whoever sent it may have lost interest


class Node:
    """One broker: what outlives its process is its directory."""

    def __init__(self, cluster: MemoryCluster, broker_id: int, epoch: int, directory: Any) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.directory = directory
        self.alive = True
        self.shutting_down = False
        self.storage_errors: list[StorageError] = []
        loop = asyncio.get_running_loop()
        clock = VirtualClock()
        self.metadata = MetadataCache("c")
        self.waiting = Waiting(loop.call_soon)

        async def opener(endpoint: Endpoint) -> MemoryConnection:
            return await cluster.open(self, endpoint)

        self.fetchers = Fetchers(FetchSettings(broker_id), opener, clock)
        self.cut_off = False
        self.replicas = Replicas(
            broker_id,
            logs=directory,
            isr_store=cluster.states,
            metadata=self.metadata,
            waiting=self.waiting,
            fetchers=self.fetchers,
            clock=clock,
            max_lag_ms=cluster.max_lag_ms,
            offload=_inline,
            on_storage_error=self.storage_errors.append,
            cut_off=lambda: self.cut_off,
        )
        self.fetchers.on_storage_error = self.replicas.storage_failed
        self.handlers = Handlers(self.replicas, self.metadata, cluster.states, NoController())
        self._ticking = loop.create_task(self._tick(clock))

    @property
    def info(self) -> BrokerInfo:
        clients, brokers = ("h", self.broker_id), ("h", 100 + self.broker_id)
        return BrokerInfo(self.broker_id, self.epoch, *clients, *brokers, self.shutting_down)

    def replica(self, tp: TopicPartition = TP) -> Replica:
        found = self.replicas.get(tp)
        assert found is not None
        return found

    def log(self, tp: TopicPartition = TP) -> MemoryLog:
        return cast(MemoryLog, self.replica(tp).log)

    async def ask(self, request: Request, *, peer: bytes = b"client", sender_epoch: int = -1) -> Any:
        """As a client, or as a broker where a `sender_epoch` is given."""
        context = RequestContext(peer, "test", sender_epoch, -1, sender_epoch >= 0)
        outcome = self.handlers.handle(request, context)
        return outcome if outcome is None or isinstance(outcome, Response) else await outcome

    async def stop(self) -> None:
        self.alive = False
        self._ticking.cancel()
        await self.fetchers.close()

    async def _tick(self, clock: VirtualClock) -> None:
        while True:
            self.replicas.tick(clock.monotonic_ms())
            await asyncio.sleep(0.01)


async def _inline(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    await asyncio.sleep(LATENCY_S)
    return function(*args, **kwargs)


# --- the cluster ---------------------------------------------------------------------------------------------


class NoController:
    """A shell whose broker does not hold the seat."""

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        code = NotControllerError.code
        return CreateTopicsResponse(tuple(CreatedTopic(topic.name, code) for topic in request.topics))

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(tuple(DeletedTopic(name, NotControllerError.code) for name in request.topics))

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        return ControlledShutdownResponse(NotControllerError.code)


class MemoryCluster:
    """Brokers 1 to `size`. The test is the controller: it elects, and tells whom it wants to tell."""

    def __init__(self, size: int = 3, *, max_lag_ms: int = 1000, directory: Callable[[], Any] = MemoryLogs) -> None:
        self.max_lag_ms = max_lag_ms
        self.states = MemoryStates()
        self.connections: list[MemoryConnection] = []
        self.requests: list[tuple[int, int, Request]] = []
        self.cuts: set[tuple[int, int]] = set()
        self.nodes: dict[int, Node] = {}
        self.configs: dict[str, str] = {"min.insync.replicas": "2"}
        self.replicas = tuple(range(1, size + 1))
        self.controller_epoch = 1
        self._epochs = 100
        self._names = 0
        for broker_id in self.replicas:
            self.nodes[broker_id] = Node(self, broker_id, self._next_epoch(), directory())

    async def __aenter__(self) -> MemoryCluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if node.alive:
                await node.replicas.close()
                await node.stop()

    def next_name(self) -> bytes:
        self._names += 1
        return b"connection-%d" % self._names

    def _next_epoch(self) -> int:
        self._epochs += 1
        return self._epochs

    async def open(self, source: Node, endpoint: Endpoint) -> MemoryConnection:
        await asyncio.sleep(LATENCY_S)
        target = self.nodes[endpoint.port - 100]
        if not target.alive or (source.broker_id, target.broker_id) in self.cuts:
            raise DisconnectedError("nobody there")
        return MemoryConnection(self, source, target)

    # --- faults ---

    async def kill(self, broker_id: int) -> None:
        self.nodes[broker_id].alive = False
        for connection in self.connections:
            if connection.concerns(broker_id):
                connection.close()
        await self.nodes[broker_id].stop()

    def restart(self, broker_id: int) -> None:
        """A new process over what the old one left."""
        self.nodes[broker_id] = Node(self, broker_id, self._next_epoch(), self.nodes[broker_id].directory)

    def cut(self, one: int, other: int) -> None:
        self.cuts |= {(one, other), (other, one)}

    def heal(self) -> None:
        self.cuts.clear()

    # --- the controller ---

    def live(self) -> tuple[BrokerInfo, ...]:
        return tuple(node.info for node in self.nodes.values() if node.alive)

    async def elect(
        self,
        leader: int,
        *,
        isr: Iterable[int] | None = None,
        tell: Iterable[int] | None = None,
        tp: TopicPartition = TP,
    ) -> None:
        """Write a new leader epoch and tell the live brokers (or those of `tell`)."""
        before = self.states.states.get(tp)
        if before is None:
            members = tuple(isr or self.replicas)
            self.states.states[tp] = VersionedState(PartitionState(leader, 0, members, self.controller_epoch), 0)
        else:
            members = tuple(isr) if isr is not None else before.state.isr
            state = replace(before.state, leader=leader, leader_epoch=before.state.leader_epoch + 1, isr=members)
            self.states.states[tp] = VersionedState(state, before.partition_epoch + 1)
        await self.tell(tell, tp)

    async def tell(self, whom: Iterable[int] | None = None, tp: TopicPartition = TP) -> None:
        """Send the state as ZooKeeper has it."""
        for broker_id in whom if whom is not None else [node.broker_id for node in self.nodes.values() if node.alive]:
            response = await self.nodes[broker_id].ask(self.leader_and_isr(tp), sender_epoch=1)
            assert isinstance(response, LeaderAndIsrResponse)
            assert [each.error_code for each in response.partitions] == [0]

    def leader_and_isr(self, tp: TopicPartition = TP, *, topic_id: str = TOPIC_ID) -> LeaderAndIsrRequest:
        versioned = self.states.states[tp]
        state = versioned.state
        message = PartitionStateMessage(
            tp.topic,
            tp.partition,
            state.controller_epoch,
            state.leader,
            state.leader_epoch,
            state.isr,
            versioned.partition_epoch,
            self.replicas,
        )
        topics = (TopicInfo(tp.topic, topic_id, self.configs),)
        return LeaderAndIsrRequest(1, self.controller_epoch, (message,), topics, self.live())

    @property
    def leader(self) -> Node:
        return self.nodes[self.states.states[TP].state.leader]

    # --- clients ---

    async def produce(
        self, value: bytes, *, acks: int = -1, timeout_ms: int = 5000, to: int | None = None
    ) -> tuple[int, int]:
        """Append one record; (error code, base offset)."""
        node = self.leader if to is None else self.nodes[to]
        response = await node.ask(produce_request(value, acks=acks, timeout_ms=timeout_ms))
        assert isinstance(response, ProduceResponse)
        return response.partitions[0].error_code, response.partitions[0].base_offset

    async def consume(self, offset: int, *, to: int | None = None) -> tuple[int, list[bytes]]:
        """What a consumer sees from `offset` on at once; (error code, values)."""
        node = self.leader if to is None else self.nodes[to]
        request = FetchRequest(-1, 0, 1, 1 << 20, (FetchPartition(TP.topic, TP.partition, -1, offset, 1 << 20),))
        response = await node.ask(request)
        assert isinstance(response, FetchResponse)
        answer = response.partitions[0]
        return answer.error_code, values_of(answer.records or b"", offset)


def batch_of(*values: bytes, timestamp: int = 1_700_000_000_000, producer_id: int = -1, sequence: int = -1) -> bytes:
    records = [(timestamp + index, None, value, ()) for index, value in enumerate(values)]
    epoch = 0 if producer_id >= 0 else -1
    return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def produce_request(
    *values: bytes, acks: int = -1, timeout_ms: int = 5000, tp: TopicPartition = TP, batch: bytes | None = None
) -> ProduceRequest:
    records = batch if batch is not None else batch_of(*values)
    return ProduceRequest(acks, timeout_ms, (ProducePartition(tp.topic, tp.partition, records),))


def values_of(records: Buffer, offset: int) -> list[bytes]:
    found = []
    for position, _ in iter_headers(records):
        found += [record.value or b"" for record in decode_records(records, position) if record.offset >= offset]
    return found

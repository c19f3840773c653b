"""Provide brokers in memory behind a network in memory, for the clients of these tests.

A partition has one log, which every broker shares (replication is not tested here); its leader checks producer
sequences as Kafka's does. Faults are injected by a test, or by a function that sees every request.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import NamedTuple

from tests.tidelog.fake_coordinator import FakeCoordinator
from tests.tidelog.fake_zookeeper_offsets import FakeZooKeeperOffsets
from tidelog.errors import (
    BrokerError,
    DisconnectedError,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    InvalidProducerEpochError,
    InvalidRecordError,
    LeaderNotAvailableError,
    MessageTooLargeError,
    NotControllerError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    TimeoutError,
    TopicAlreadyExistsError,
    UnknownLeaderEpochError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import CONSUMER_REPLICA_ID, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, Endpoint
from tidelog.protocol.admin_messages import DescribeLogDirsRequest, DescribeLogDirsResponse, LogDir, LogDirReplica
from tidelog.protocol.group_messages import GROUP_REQUESTS
from tidelog.protocol.kafka.client.connected_broker import TIDELOG
from tidelog.protocol.list_offsets_v0_messages import (
    ListSegmentOffsetsRequest,
    ListSegmentOffsetsResponse,
    SegmentOffsets,
    SegmentOffsetsPartition,
)
from tidelog.protocol.messages import (
    BrokerAddress,
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    EpochEndOffset,
    EpochPartition,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    PartitionMetadata,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    RecordError,
    ReplicasDescription,
    Request,
    Response,
    TopicMetadata,
)
from tidelog.records.decode import Record, decode_records
from tidelog.records.encode import encode_batch
from tidelog.records.header import assign_offsets, read_header

CLUSTER_ID = "fake-cluster"
#: The key of a record that was not sent through the producer of the test.
OTHER_PRODUCER = b"another producer"
LATENCY_S = 0.0005
#: A leader checks for a repetition before it rejects a batch for these reasons.
CHECKED_AFTER_REPETITIONS = {
    InvalidProducerEpochError.code,
    MessageTooLargeError.code,
    OutOfOrderSequenceError.code,
    RecordListTooLargeError.code,
    UnknownProducerIdError.code,
}


class Fault(Enum):
    """A fault of one request."""

    LOSE_REQUEST = auto()  # the connection breaks before the broker sees it
    LOSE_ANSWER = auto()  # … after it acted on it
    SWALLOW = auto()  # no answer, connection stays
    SWALLOW_ANSWER = auto()
    DELAY = auto()  # acted on and answered `FakeCluster.delay_s` later
    LEAVE_OUT = auto()  # acted on, and the answer names no partition
    LEAVE_OUT_UNDONE = auto()  # not acted on, and the answer names no partition
    NOT_ENOUGH_REPLICAS = auto()
    NOT_ENOUGH_AFTER_APPEND = auto()
    FORGET_PRODUCERS = auto()  # UNKNOWN_PRODUCER_ID
    MOVE_LEADERS = auto()  # before it is acted on
    MOVE_LEADERS_AFTER = auto()


class Verdict(NamedTuple):
    """The leader's reaction to one batch: it appends the batch or not (`stored`), and answers `code` in either case.

    faulty: the positions of the records for which it refuses the batch (KIP-467).
    A leader that recognises a repetition answers with the place of the first batch, as real leaders do, instead of
    refusing it for its size or its sequence.
    """

    code: int
    stored: bool
    faulty: tuple[int, ...] = ()


@dataclass
class FakePartition:
    """One partition: `leader` −1 for none; `first_offset` grows when records are deleted.

    too_large   the error for a batch of more than `max_batch_bytes`
    fault_of    returns why the topic excludes a record, or None; `excluded` is the error of a batch with such records
    crowded     another producer writes a record after each batch
    high_watermark      the end of the log for consumers; None: the real end
    """

    topic: str
    number: int
    leader: int
    epoch: int = 0
    first_offset: int = 0
    batches: list[bytes] = field(default_factory=list)
    producers: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    produces: int = 0
    max_batch_bytes: int = 1 << 20
    too_large: type[BrokerError] = MessageTooLargeError
    fault_of: Callable[[Record], str | None] | None = None
    excluded: type[BrokerError] = InvalidRecordError
    crowded: bool = False
    high_watermark: int | None = None

    @property
    def end_offset(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else self.first_offset

    def bound_for(self, replica_id: int) -> int:
        """The end of the log for clients that look up offsets."""
        visible = self.high_watermark if replica_id == CONSUMER_REPLICA_ID else None
        return self.end_offset if visible is None else visible

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_records(batch)]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records() if record.key != OTHER_PRODUCER]

    def append(self, batch: bytes) -> int:
        if len(batch) > self.max_batch_bytes:
            raise self.too_large(f"a batch of {len(batch)} bytes; max.message.bytes is {self.max_batch_bytes}")
        faults = self._faults(batch)
        if faults and self.place_of_repeated(batch) is None:
            raise self.excluded(f"record {min(faults)} is excluded", record_errors=faults)
        base_offset = self._append_alone(batch)
        if self.crowded:
            self._append_alone(encode_batch([(0, OTHER_PRODUCER, None, ())]))
        return base_offset

    def _faults(self, batch: bytes) -> dict[int, str]:
        """Return what is wrong with single records, by their index; a batch may hold none that can be decoded."""
        if self.fault_of is None:
            return {}
        return {index: fault for index, each in enumerate(decode_records(batch)) if (fault := self.fault_of(each))}

    def place_of_repeated(self, batch: bytes) -> int | None:
        """Return the base offset of an earlier batch with the same producer id and sequences."""
        header = read_header(batch)
        for first, last, base in self.producers.get(header.producer_id, ()) if header.producer_id >= 0 else ():
            if (first, last) == (header.base_sequence, header.last_sequence):
                return base
        return None

    def _append_alone(self, batch: bytes) -> int:
        header = read_header(batch)
        if header.producer_id >= 0:
            repeated = self.place_of_repeated(batch)
            if repeated is not None:
                return repeated
            seen = self.producers.setdefault(header.producer_id, deque(maxlen=5))
            if seen and header.base_sequence != (expected := (seen[-1][1] + 1) % (1 << 31)):
                raise OutOfOrderSequenceError(f"{header.base_sequence} where {expected} is due")
            seen.append((header.base_sequence, header.last_sequence, self.end_offset))
        base_offset = self.end_offset
        stored = bytearray(batch)
        assign_offsets(stored, 0, base_offset, self.epoch)
        self.batches.append(bytes(stored))
        self.grown.set()
        self.grown = asyncio.Event()
        return base_offset

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the greatest epoch ≤ `epoch`, its end) in the leader's log; (−1, −1) for a later epoch."""
        starts = {header.partition_leader_epoch: header.base_offset for header in map(read_header, self.batches[::-1])}
        starts.setdefault(self.epoch, self.end_offset)
        if epoch > max(starts):
            return -1, -1
        later = [start for each, start in starts.items() if each > epoch]
        return max((each for each in starts if each <= epoch), default=epoch), min(later, default=self.end_offset)

    def elect_uncleanly(self, leader: int, keeping: int) -> None:
        """Elect a replica that has only the first batches, so many."""
        self.elect_another(leader, self.batches[:keeping])

    def elect_another(self, leader: int, batches: list[bytes]) -> None:
        """Elect a replica that has these batches."""
        self.batches = list(batches)
        self.elect(leader)

    def elect(self, leader: int) -> None:
        self.leader, self.epoch = leader, self.epoch + 1
        self.grown.set()
        self.grown = asyncio.Event()


class FakeCluster:
    """The brokers have ids from 1 and addresses fake:1001, fake:1002, …

    cut_off       the brokers that answer Metadata and nothing else
    wrong_topic   the error for a fetch with the id of an earlier topic of the name
    on_send   called before a client sends a request; an exception that it raises is a defect of that client
    """

    def __init__(self, brokers: int = 3) -> None:
        self.live = dict.fromkeys(range(1, brokers + 1), True)
        self.hung: set[int] = set()
        self.cut_off: set[int] = set()
        self.controller = 1
        self.kind = TIDELOG
        self.partitions: dict[str, list[FakePartition]] = {}
        self.topic_ids: dict[str, str] = {}
        self.fault_of: Callable[[int, Request], Fault | None] = lambda broker, request: None
        self.on_send: Callable[[int, Request], None] = lambda broker, request: None
        self.refusals: dict[type[Request], deque[int]] = defaultdict(deque)
        self.verdicts: deque[Verdict] = deque()
        self.delay_s = 5.0
        self.wrong_topic: type[BrokerError] = InconsistentTopicIdError
        self.requests: list[tuple[int, Request]] = []
        self.connections: dict[int, set[FakeConnection]] = defaultdict(set)
        self.known_to: dict[int, set[str]] = {}
        self._behind: dict[int, dict[str, list[FakePartition]]] = {}
        self.late_metadata: deque[MetadataResponse] = deque()
        self.coordinator = FakeCoordinator(self)
        self.zookeeper = FakeZooKeeperOffsets(self)
        self._ids = itertools.count(1000)
        self.client_seeds = itertools.count(7)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"fake:{1000 + broker}" for broker in self.live)

    def create(self, topic: str, partitions: int = 1) -> list[FakePartition]:
        brokers = list(self.live)
        self.partitions[topic] = [
            FakePartition(topic, number, brokers[number % len(brokers)]) for number in range(partitions)
        ]
        self.topic_ids[topic] = f"id-{topic}-{next(self._ids)}"
        return self.partitions[topic]

    def kill(self, broker: int, *, elect: bool = True) -> None:
        """Stop a broker: its connections break, and its partitions get another leader at once, or none."""
        self.live[broker] = False
        for connection in list(self.connections[broker]):
            connection.close()
        others = [each for each, alive in self.live.items() if alive]
        for partition in itertools.chain(*self.partitions.values()):
            if partition.leader == broker:
                partition.elect(others[0] if others and elect else -1)
        if self.controller == broker:
            self.controller = others[0] if others else -1

    def revive(self, broker: int) -> None:
        self.live[broker] = True
        for partition in itertools.chain(*self.partitions.values()):
            if partition.leader == -1:
                partition.elect(broker)

    def move(self, partition: FakePartition) -> int:
        others = [each for each, alive in self.live.items() if alive and each != partition.leader]
        if others:
            partition.elect(others[partition.epoch % len(others)])
        return partition.leader

    def leave_behind(self, broker: int) -> None:
        """Freeze the broker's metadata: it goes on to report the present leaders, itself among them."""
        self._behind[broker] = {
            topic: [replace(each, batches=list(each.batches), grown=asyncio.Event()) for each in partitions]
            for topic, partitions in self.partitions.items()
        }

    def _seen_by(self, broker: int) -> dict[str, list[FakePartition]]:
        return self._behind.get(broker, self.partitions)

    def sent(self, kind: type[Request]) -> list[Request]:
        return [request for _, request in self.requests if isinstance(request, kind)]

    async def open(self, endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> FakeConnection:
        broker = endpoint.port - 1000
        await asyncio.sleep(LATENCY_S)
        if not self.live.get(broker):
            raise DisconnectedError(f"{endpoint} refuses")
        if broker in self.hung:
            await asyncio.sleep(timeout_ms / 1000)
            raise TimeoutError(f"{endpoint} does not shake hands")
        connection = FakeConnection(self, broker, endpoint)
        self.connections[broker].add(connection)
        return connection

    # --- a broker's answers -----------------------------------------------------------------------

    async def handle(self, broker: int, request: Request) -> Response:
        refusals = self.refusals[type(request)]
        code = refusals.popleft() if refusals else 0
        match request:
            case MetadataRequest():
                return self.metadata(broker, request)
            case InitProducerIdRequest():
                return InitProducerIdResponse(code, -1 if code else next(self._ids), 0)
            case ProduceRequest():
                return ProduceResponse(tuple(self._produce(broker, code, each) for each in request.partitions))
            case FetchRequest():
                return await self._fetch(broker, code, request)
            case ListOffsetsRequest():
                return ListOffsetsResponse(
                    tuple(self._list_offsets(broker, code, each, request.replica_id) for each in request.partitions)
                )
            case ListSegmentOffsetsRequest():
                return ListSegmentOffsetsResponse(
                    tuple(self._segment_offsets(broker, code, each) for each in request.partitions)
                )
            case OffsetForLeaderEpochRequest():
                return OffsetForLeaderEpochResponse(
                    tuple(self._end_of_epoch(broker, code, each) for each in request.partitions)
                )
            case DescribeReplicasRequest():
                return DescribeReplicasResponse(
                    tuple(self._describe(broker, each.topic, each.partition) for each in request.partitions)
                )
            case DescribeLogDirsRequest():
                return DescribeLogDirsResponse((LogDir("/data", 0, None, tuple(self._logs(broker))),))
            case CreateTopicsRequest():
                return CreateTopicsResponse(
                    tuple(self._create(broker, code, each.name, each.num_partitions) for each in request.topics)
                )
            case DeleteTopicsRequest():
                return DeleteTopicsResponse(tuple(self._delete(broker, name) for name in request.topics))
        if getattr(request, "in_zookeeper", False):
            return self.zookeeper.handle(code, request)
        if isinstance(request, GROUP_REQUESTS):
            return await self.coordinator.handle(broker, code, request)
        raise AssertionError(request)

    def metadata(self, broker: int, request: MetadataRequest) -> MetadataResponse:
        """Return the broker's metadata, or the old metadata if the broker is in `late_metadata`."""
        if self.late_metadata:
            return self.late_metadata.popleft()
        seen = self._seen_by(broker)
        topics = []
        for name in seen if request.topics is None else request.topics:
            if name not in seen or name not in self.known_to.get(broker, seen):
                topics.append(TopicMetadata(name, UnknownTopicOrPartitionError.code))
                continue
            partitions = tuple(
                PartitionMetadata(
                    each.number, 0 if each.leader > 0 else LeaderNotAvailableError.code, each.leader, each.epoch,
                    tuple(self.live), tuple(id for id, alive in self.live.items() if alive),
                )
                for each in seen[name]
            )  # fmt: skip
            topics.append(TopicMetadata(name, 0, self.topic_ids[name], name == OFFSETS_TOPIC, partitions))
        brokers = tuple(BrokerAddress(id, "fake", 1000 + id) for id, alive in self.live.items() if alive)
        return MetadataResponse(CLUSTER_ID, self.controller, brokers, tuple(topics))

    def _led(self, broker: int, topic: str, number: int, epoch: int = -1) -> FakePartition:
        partitions = self._seen_by(broker).get(topic, [])
        if number >= len(partitions):
            raise UnknownTopicOrPartitionError
        partition = partitions[number]
        if partition.leader != broker:
            raise NotLeaderOrFollowerError
        if 0 <= epoch < partition.epoch:
            raise FencedLeaderEpochError
        if epoch > partition.epoch:
            raise UnknownLeaderEpochError
        return partition

    def _produce(self, broker: int, code: int, asked: object) -> ProducePartitionResponse:
        topic, number, records = asked.topic, asked.partition, asked.records  # type: ignore[attr-defined]
        try:
            partition = self._led(broker, topic, number)
            partition.produces += 1
            if self.verdicts:
                return self._judged(partition, bytes(records), self.verdicts.popleft())
            if code and code != NotEnoughReplicasAfterAppendError.code:
                return ProducePartitionResponse(topic, number, code)
            base_offset = partition.append(bytes(records))
            return ProducePartitionResponse(topic, number, code, -1 if code else base_offset)
        except BrokerError as error:
            named = tuple(itertools.starmap(RecordError, error.record_errors.items()))
            return ProducePartitionResponse(topic, number, error.code, error_message=str(error), record_errors=named)

    @staticmethod
    def _judged(partition: FakePartition, batch: bytes, verdict: Verdict) -> ProducePartitionResponse:
        tp = (partition.topic, partition.number)
        repeated = partition.place_of_repeated(batch)
        if verdict.stored:
            partition.append(batch)
        elif repeated is not None and (verdict.code in CHECKED_AFTER_REPETITIONS or verdict.faulty):
            return ProducePartitionResponse(*tp, 0, repeated)
        named = tuple(RecordError(each, f"record {each} is excluded") for each in verdict.faulty)
        return ProducePartitionResponse(*tp, verdict.code, record_errors=named)

    async def _fetch(self, broker: int, code: int, request: FetchRequest) -> FetchResponse:
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while True:
            answers = [self._fetch_one(broker, code, each) for each in request.partitions]
            left = deadline - asyncio.get_running_loop().time()
            if any(each.records or each.error_code for each in answers) or left < 1e-6:
                return FetchResponse(tuple(answers))
            waits = [
                asyncio.ensure_future(self._seen_by(broker)[each.topic][each.partition].grown.wait())
                for each in request.partitions
            ]
            await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()

    def _fetch_one(self, broker: int, code: int, asked: FetchPartition) -> FetchPartitionResponse:
        try:
            if asked.topic in self.partitions and asked.topic_id not in ("", self.topic_ids[asked.topic]):
                raise self.wrong_topic(asked.topic_id)
            partition = self._led(broker, asked.topic, asked.partition, asked.current_leader_epoch)
            if code:
                return FetchPartitionResponse(asked.topic, asked.partition, code)
            if not partition.first_offset <= asked.fetch_offset <= partition.end_offset:
                end = partition.end_offset
                bounds = (end, end, partition.first_offset)
                return FetchPartitionResponse(asked.topic, asked.partition, OffsetOutOfRangeError.code, *bounds)
        except BrokerError as error:
            return FetchPartitionResponse(asked.topic, asked.partition, error.code)
        found = b""
        end = partition.bound_for(CONSUMER_REPLICA_ID)
        for batch in partition.batches:
            if asked.fetch_offset < read_header(batch).next_offset <= end:
                if found and len(found) + len(batch) > asked.partition_max_bytes:
                    break
                found += batch
        return FetchPartitionResponse(
            asked.topic, asked.partition, 0, end, end, partition.first_offset, memoryview(found) if found else None
        )

    def _list_offsets(
        self, broker: int, code: int, asked: ListOffsetsPartition, replica_id: int
    ) -> ListOffsetsPartitionResponse:
        topic, number = asked.topic, asked.partition
        try:
            partition = self._led(broker, topic, number, asked.current_leader_epoch)
        except BrokerError as error:
            return ListOffsetsPartitionResponse(topic, number, error.code)
        if code:
            unreadable = partition.first_offset if code == InvalidRecordError.code else -1
            return ListOffsetsPartitionResponse(topic, number, code, offset=unreadable)
        if asked.timestamp == EARLIEST_TIMESTAMP:
            return ListOffsetsPartitionResponse(topic, number, 0, -1, partition.first_offset, partition.epoch)
        end = partition.bound_for(replica_id)
        if asked.timestamp == LATEST_TIMESTAMP:
            return ListOffsetsPartitionResponse(topic, number, 0, -1, end, partition.epoch)
        visible = [record for record in partition.records() if partition.first_offset <= record.offset < end]
        target = asked.timestamp
        if target == MAX_TIMESTAMP:
            target = max((record.timestamp for record in visible), default=0)
        for record in visible:
            if record.timestamp >= target:
                return ListOffsetsPartitionResponse(topic, number, 0, record.timestamp, record.offset, partition.epoch)
        return ListOffsetsPartitionResponse(topic, number, 0)

    def _segment_offsets(self, broker: int, code: int, asked: SegmentOffsetsPartition) -> SegmentOffsets:
        """Treat every batch as a segment that is as old as its records."""
        topic, number = asked.topic, asked.partition
        try:
            partition = self._led(broker, topic, number, asked.current_leader_epoch)
        except BrokerError as error:
            return SegmentOffsets(topic, number, error.code)
        headers = [read_header(batch) for batch in partition.batches]
        found = [header.base_offset for header in headers if header.max_timestamp <= asked.timestamp]
        if asked.timestamp == LATEST_TIMESTAMP:
            found = [*(header.base_offset for header in headers), partition.end_offset]
        return SegmentOffsets(topic, number, code, tuple(sorted(found, reverse=True)[: asked.max_num_offsets]))

    def _end_of_epoch(self, broker: int, code: int, asked: EpochPartition) -> EpochEndOffset:
        topic, number = asked.topic, asked.partition
        try:
            partition = self._led(broker, topic, number, asked.current_leader_epoch)
        except BrokerError as error:
            return EpochEndOffset(topic, number, error.code)
        return EpochEndOffset(topic, number, code, *((-1, -1) if code else partition.end_of_epoch(asked.leader_epoch)))

    def _describe(self, broker: int, topic: str, number: int) -> ReplicasDescription:
        try:
            partition = self._led(broker, topic, number)
        except BrokerError as error:
            return ReplicasDescription(topic, number, error.code)
        end = partition.end_offset
        ends = {id: end if alive else -1 for id, alive in self.live.items()}
        isr = tuple(id for id, alive in self.live.items() if alive)
        return ReplicasDescription(topic, number, 0, partition.epoch, partition.first_offset, end, end, isr, ends)

    def _logs(self, broker: int) -> Iterator[LogDirReplica]:
        for each in itertools.chain(*self.partitions.values()):
            if each.leader == broker:
                yield LogDirReplica(each.topic, each.number, sum(map(len, each.batches)), 0)
                yield LogDirReplica(each.topic, each.number, 1, 0, is_future=True)

    def _create(self, broker: int, code: int, name: str, partitions: int) -> CreatedTopic:
        if broker != self.controller:
            return CreatedTopic(name, NotControllerError.code)
        if code:
            return CreatedTopic(name, code)
        if name in self.partitions:
            return CreatedTopic(name, TopicAlreadyExistsError.code, "it exists")
        self.create(name, partitions)
        return CreatedTopic(name, 0, None, self.topic_ids[name], partitions, 3)

    def _delete(self, broker: int, name: str) -> DeletedTopic:
        if broker != self.controller:
            return DeletedTopic(name, NotControllerError.code)
        if name not in self.partitions:
            return DeletedTopic(name, UnknownTopicOrPartitionError.code)
        del self.partitions[name]
        return DeletedTopic(name, 0)


class FakeConnection:
    """One client's connection to one broker."""

    def __init__(self, cluster: FakeCluster, broker: int, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.broker_id = broker
        self.longest_throttle_ms = 0
        self.cluster_kind = cluster.kind
        self.closed = False
        self._cluster = cluster
        self._broker = broker
        self._pending: set[asyncio.Future[Response]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]:
        self._cluster.on_send(self._broker, request)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        if self.closed:
            answer.set_exception(DisconnectedError("closed"))
            return answer
        self._pending.add(answer)
        timer = loop.call_later(timeout_ms / 1000, self._time_out, answer)
        answer.add_done_callback(lambda _: (timer.cancel(), self._pending.discard(answer)))
        task = asyncio.create_task(self._serve(request, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return answer

    def send_no_reply(self, request: Request, *, timeout_ms: int) -> None:
        self.send(request, timeout_ms=timeout_ms)

    def close(self) -> None:
        self.closed = True
        self._cluster.connections[self._broker].discard(self)
        for answer in list(self._pending):
            if not answer.done():
                answer.set_exception(DisconnectedError(f"connection to broker {self._broker} broke"))
                answer.exception()

    @staticmethod
    def _time_out(answer: asyncio.Future[Response]) -> None:
        if not answer.done():
            answer.set_exception(TimeoutError("no answer"))
            answer.exception()

    async def _serve(self, request: Request, answer: asyncio.Future[Response]) -> None:
        cluster = self._cluster
        await asyncio.sleep(LATENCY_S)
        if self.closed:
            return
        cluster.requests.append((self._broker, request))
        fault = cluster.fault_of(self._broker, request)
        while self._broker in cluster.hung or (  # noqa: ASYNC110
            self._broker in cluster.cut_off and not isinstance(request, MetadataRequest)
        ):
            await asyncio.sleep(0.1)
        if fault is Fault.LOSE_REQUEST:
            self.close()
            return
        if fault is Fault.SWALLOW:
            return
        if fault is Fault.DELAY:
            await asyncio.sleep(cluster.delay_s)
        if fault is Fault.MOVE_LEADERS:
            self._move(request)
        if fault is Fault.FORGET_PRODUCERS:
            for each in getattr(request, "partitions", ()):
                cluster.partitions[each.topic][each.partition].producers.clear()
            cluster.refusals[type(request)].append(UnknownProducerIdError.code)
        if fault is Fault.NOT_ENOUGH_REPLICAS:
            cluster.refusals[type(request)].append(NotEnoughReplicasError.code)
        if fault is Fault.NOT_ENOUGH_AFTER_APPEND:
            cluster.refusals[type(request)].append(NotEnoughReplicasAfterAppendError.code)
        left_out = fault in (Fault.LEAVE_OUT, Fault.LEAVE_OUT_UNDONE) and isinstance(request, ProduceRequest)
        if left_out and fault is Fault.LEAVE_OUT_UNDONE:
            response: Response = ProduceResponse(())
        else:
            response = await cluster.handle(self._broker, request)
            response = ProduceResponse(()) if left_out else response
        if fault is Fault.MOVE_LEADERS_AFTER:
            self._move(request)
        if fault is Fault.LOSE_ANSWER:
            self.close()
            return
        await asyncio.sleep(LATENCY_S)
        if not answer.done() and fault is not Fault.SWALLOW_ANSWER:
            answer.set_result(response)

    def _move(self, request: Request) -> None:
        for each in getattr(request, "partitions", ()):
            self._cluster.move(self._cluster.partitions[each.topic][each.partition])

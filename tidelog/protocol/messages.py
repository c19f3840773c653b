"""Define the messages of the native protocol: one frozen dataclass each, a request after its response.

This module has the requests that clients send (and followers, which fetch as consumers do). Requests about settings,
deleted records and disks are in `tidelog.protocol.admin_messages`; those between the controller and the brokers are in
`tidelog.protocol.control_messages`. On the wire a message is a msgpack array of its fields in order
(`tidelog.protocol.codec`), without fields of later versions; a `Buffer` field is an index into the frames that follow.
API numbers, error codes and the meaning of the fields are Kafka's; numbers from 1000 on are Tidelog's own. Times are
milliseconds. An `error_code` of 0 means success (`tidelog.errors.error_for`).
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import ClassVar

from tidelog.frozen_dataclass import frozen, since
from tidelog.model import CONSUMER_REPLICA_ID, NO_TIMESTAMP, READ_UNCOMMITTED, Buffer


class ApiKey(IntEnum):
    """The kind of a request."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_REPLICAS = 1000
    EXAMINE_REPLICA = 1001
    DESCRIBE_BROKER = 1002
    LOG_ENDS = 1003
    LIST_SEGMENT_OFFSETS = 1004


class Message:
    """Base class of all messages; it has no fields."""

    __slots__ = ()


class Response(Message):
    """Base class of responses."""

    __slots__ = ()


class Request(Message):
    """Base class of requests. `versions` is the (lowest, highest) version that this code supports."""

    __slots__ = ()
    api: ClassVar[ApiKey]
    response: ClassVar[type[Response]]
    versions: ClassVar[tuple[int, int]] = (0, 0)
    #: True for requests that only brokers and the controller may send; the listener for clients rejects them.
    between_brokers: ClassVar[bool] = False


# --- ApiVersions: the first request on every connection --------------------------------------------


@frozen
class ApiRange(Message):
    """The versions of one API that the broker supports."""

    api_key: int
    min_version: int
    max_version: int


@frozen
class ApiVersionsResponse(Response):
    """The answering broker. `monotonic_ms` is its clock, on which the deadlines of this connection are stated."""

    error_code: int
    cluster_id: str
    broker_id: int
    broker_epoch: int
    monotonic_ms: int
    apis: tuple[ApiRange, ...]


@frozen
class ApiVersionsRequest(Request):
    """The handshake, with the sender's software name and version."""

    client_software: str

    api = ApiKey.API_VERSIONS
    response = ApiVersionsResponse


# --- Produce -----------------------------------------------------------------------------------------


@frozen
class ProducePartition(Message):
    """The batch for one partition; `records` is exactly one RecordBatch (v2)."""

    topic: str
    partition: int
    records: Buffer


@frozen
class RecordError(Message):
    """A record that made the leader reject its batch (KIP-467). `batch_index` counts the batch's records from 0."""

    batch_index: int
    message: str | None


@frozen
class ProducePartitionResponse(Message):
    """The outcome for one partition; `base_offset` is that of the first record, also if the batch was a repetition.

    `record_errors` names the records because of which the batch was rejected, if single records are the cause.
    """

    topic: str
    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: tuple[RecordError, ...] = field(default=(), metadata=since(1))


@frozen
class ProduceResponse(Response):
    """The answer, with one entry for each partition of the request, in order."""

    partitions: tuple[ProducePartitionResponse, ...]


@frozen
class ProduceRequest(Request):
    """Appends batches. `acks` is 0 (no answer), 1 (the leader's log) or −1 (the whole ISR, within `timeout_ms`)."""

    acks: int
    timeout_ms: int
    partitions: tuple[ProducePartition, ...]

    api = ApiKey.PRODUCE
    response = ProduceResponse
    versions = (0, 1)


# --- Fetch -------------------------------------------------------------------------------------------


@frozen
class FetchPartition(Message):
    """One partition to fetch. `log_start_offset` is the follower's, −1 from consumers; "" as `topic_id`: no check."""

    topic: str
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    partition_max_bytes: int
    log_start_offset: int = -1
    topic_id: str = ""


@frozen
class FetchPartitionResponse(Message):
    """The fetched data; `records` are whole batches, and the first may begin before `fetch_offset`. None: no data."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer | None = None


@frozen
class FetchResponse(Response):
    """The answer. A consumer gets an entry for each partition of the request in order, a follower only changed ones.

    `session_id` identifies the fetch session in the next fetches; 0 if there is none.
    """

    partitions: tuple[FetchPartitionResponse, ...]
    session_id: int = 0


@frozen
class ForgottenPartition(Message):
    """A partition that a follower no longer fetches."""

    topic: str
    partition: int


@frozen
class FetchRequest(Request):
    """Fetches records; the broker waits up to `max_wait_ms` for `min_bytes`.

    `replica_id` ≥ 0 is a follower's, and its `fetch_offset` is its log end offset, so that the fetch acknowledges all
    records below. `session_epoch` 0 begins a fetch session. The next fetches count from 1 and name only the partitions
    that have changed, but apply to all others of the session, too (KIP-227). −1 requests no session.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[FetchPartition, ...]
    isolation_level: int = READ_UNCOMMITTED
    session_id: int = 0
    session_epoch: int = -1
    forgotten: tuple[ForgottenPartition, ...] = ()

    api = ApiKey.FETCH
    response = FetchResponse


# --- ListOffsets -------------------------------------------------------------------------------------


@frozen
class ListOffsetsPartition(Message):
    """One partition to look up; `timestamp` in ms, or −1 latest, −2 earliest, −3 the largest timestamp."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = -1


@frozen
class ListOffsetsPartitionResponse(Message):
    """The found offset; `offset` and `timestamp` are −1 if no record qualifies."""

    topic: str
    partition: int
    error_code: int
    timestamp: int = NO_TIMESTAMP
    offset: int = -1
    leader_epoch: int = -1


@frozen
class ListOffsetsResponse(Response):
    """The answer, with one entry for each partition of the request, in order."""

    partitions: tuple[ListOffsetsPartitionResponse, ...]


@frozen
class ListOffsetsRequest(Request):
    """Looks up offsets by time; only the leader answers (a follower also answers `replica_id` −2)."""

    partitions: tuple[ListOffsetsPartition, ...]
    replica_id: int = CONSUMER_REPLICA_ID
    isolation_level: int = READ_UNCOMMITTED

    api = ApiKey.LIST_OFFSETS
    response = ListOffsetsResponse


# --- Metadata ----------------------------------------------------------------------------------------


@frozen
class BrokerAddress(Message):
    """The address of a live broker for clients."""

    broker_id: int
    host: str
    port: int


@frozen
class PartitionMetadata(Message):
    """One partition; `leader` is −1 if there is none (`error_code` LEADER_NOT_AVAILABLE)."""

    partition: int
    error_code: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@frozen
class TopicMetadata(Message):
    """One topic; `topic_id` is the UUID in Kafka's base64url form, empty with an error."""

    name: str
    error_code: int
    topic_id: str = ""
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()


@frozen
class MetadataResponse(Response):
    """The cluster's metadata as the answering broker knows it."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerAddress, ...]
    topics: tuple[TopicMetadata, ...]


@frozen
class MetadataRequest(Request):
    """Requests metadata; `topics` None asks for all topics."""

    topics: tuple[str, ...] | None = None

    api = ApiKey.METADATA
    response = MetadataResponse


# --- OffsetForLeaderEpoch ----------------------------------------------------------------------------


@frozen
class EpochPartition(Message):
    """One partition, with the leader epoch whose end in the leader's log is requested."""

    topic: str
    partition: int
    current_leader_epoch: int
    leader_epoch: int


@frozen
class EpochEndOffset(Message):
    """The largest epoch up to the requested one, and its end offset (exclusive); (−1, −1) if there is none."""

    topic: str
    partition: int
    error_code: int
    leader_epoch: int = -1
    end_offset: int = -1


@frozen
class OffsetForLeaderEpochResponse(Response):
    """The answer, with one entry for each partition of the request, in order."""

    partitions: tuple[EpochEndOffset, ...]


@frozen
class OffsetForLeaderEpochRequest(Request):
    """Asks for the ends of epochs, by which a follower truncates its log before it fetches (KIP-101, KIP-320)."""

    partitions: tuple[EpochPartition, ...]
    replica_id: int = CONSUMER_REPLICA_ID

    api = ApiKey.OFFSET_FOR_LEADER_EPOCH
    response = OffsetForLeaderEpochResponse


# --- InitProducerId ----------------------------------------------------------------------------------


@frozen
class InitProducerIdResponse(Response):
    """A producer id that was never given out before, with epoch 0."""

    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


@frozen
class InitProducerIdRequest(Request):
    """Requests a producer id; any broker answers."""

    transactional_id: str | None = None

    api = ApiKey.INIT_PRODUCER_ID
    response = InitProducerIdResponse


# --- Topics ------------------------------------------------------------------------------------------


@frozen
class NewTopic(Message):
    """A topic to create; −1 means the broker's default, and with an `assignment` both numbers must be −1."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignment: dict[int, tuple[int, ...]] | None = None
    configs: dict[str, str] | None = None


@frozen
class CreatedTopic(Message):
    """The outcome for one topic."""

    name: str
    error_code: int
    error_message: str | None = None
    topic_id: str = ""
    num_partitions: int = -1
    replication_factor: int = -1


@frozen
class CreateTopicsResponse(Response):
    """The answer, with one entry for each topic of the request, in order."""

    topics: tuple[CreatedTopic, ...]


@frozen
class CreateTopicsRequest(Request):
    """Creates topics; sent to the controller.

    The answer comes when every partition has a leader. With REQUEST_TIMED_OUT the topics are created nevertheless.
    """

    topics: tuple[NewTopic, ...]
    timeout_ms: int
    validate_only: bool = False

    api = ApiKey.CREATE_TOPICS
    response = CreateTopicsResponse


@frozen
class DeletedTopic(Message):
    """The outcome for one topic."""

    name: str
    error_code: int
    error_message: str | None = None


@frozen
class DeleteTopicsResponse(Response):
    """The answer, with one entry for each topic of the request, in order."""

    topics: tuple[DeletedTopic, ...]


@frozen
class DeleteTopicsRequest(Request):
    """Deletes topics; sent to the controller."""

    topics: tuple[str, ...]
    timeout_ms: int

    api = ApiKey.DELETE_TOPICS
    response = DeleteTopicsResponse


# --- DescribeReplicas (Tidelog's own): facts that only a partition's leader knows ---------------------


@frozen
class DescribePartition(Message):
    """The name of a partition."""

    topic: str
    partition: int


@frozen
class ReplicasDescription(Message):
    """A partition's replicas; `log_end_offsets` has each replica's as the leader knows it (−1: none in this epoch)."""

    topic: str
    partition: int
    error_code: int
    leader_epoch: int = -1
    log_start_offset: int = -1
    high_watermark: int = -1
    log_end_offset: int = -1
    isr: tuple[int, ...] = ()
    log_end_offsets: dict[int, int] | None = None


@frozen
class DescribeReplicasResponse(Response):
    """The answer, with one entry for each partition of the request, in order."""

    partitions: tuple[ReplicasDescription, ...]


@frozen
class DescribeReplicasRequest(Request):
    """Describes replicas; sent to each partition's leader."""

    partitions: tuple[DescribePartition, ...]

    api = ApiKey.DESCRIBE_REPLICAS
    response = DescribeReplicasResponse


#: The requests that any client may send.
CLIENT_REQUESTS: tuple[type[Request], ...] = (
    ApiVersionsRequest,
    ProduceRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    InitProducerIdRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeReplicasRequest,
)

"""The native protocol's messages: one frozen dataclass each, a request beside its response.

Here is what clients may ask (and followers, who fetch as consumers do), but for what administers settings, records
and disks, which is in `tidelog.protocol.admin_messages`; what the controller and the brokers ask of each other is in
`tidelog.protocol.control_messages`. On the wire a message is a msgpack array of its fields in their
order (`tidelog.protocol.codec`), without those that its version does not have yet; a `Buffer` field is an index into
the frames that follow. API numbers, error codes and the meaning of the fields are Kafka's; numbers from 1000 on are
ours. Times are milliseconds. An `error_code` of 0 means success (`tidelog.errors.error_for`).
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import ClassVar

from tidelog.frozen_dataclass import frozen, since
from tidelog.model import CONSUMER_REPLICA_ID, NO_TIMESTAMP, READ_UNCOMMITTED, Buffer


class ApiKey(IntEnum):
    """What a request asks for."""

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
    """A base to name all messages by; has no fields of its own."""

    __slots__ = ()


class Response(Message):
    """What answers a request."""

    __slots__ = ()


class Request(Message):
    """What a peer may ask. `versions` is the (lowest, highest) version that this code speaks."""

    __slots__ = ()
    api: ClassVar[ApiKey]
    response: ClassVar[type[Response]]
    versions: ClassVar[tuple[int, int]] = (0, 0)
    #: True for what only brokers and the controller may send; the clients' endpoint refuses it.
    between_brokers: ClassVar[bool] = False


# --- ApiVersions: the first exchange on every connection -------------------------------------------


@frozen
class ApiRange(Message):
    """The versions of one API that the broker speaks."""

    api_key: int
    min_version: int
    max_version: int


@frozen
class ApiVersionsResponse(Response):
    """Who answers. `monotonic_ms` is the broker's own clock, on which the deadlines of this connection are stated."""

    error_code: int
    cluster_id: str
    broker_id: int
    broker_epoch: int
    monotonic_ms: int
    apis: tuple[ApiRange, ...]


@frozen
class ApiVersionsRequest(Request):
    """Who asks."""

    client_software: str

    api = ApiKey.API_VERSIONS
    response = ApiVersionsResponse


# --- Produce -----------------------------------------------------------------------------------------


@frozen
class ProducePartition(Message):
    """`records` is exactly one RecordBatch (v2)."""

    topic: str
    partition: int
    records: Buffer


@frozen
class RecordError(Message):
    """A record that made the leader refuse its batch (KIP-467). `batch_index` counts the batch's records from 0."""

    batch_index: int
    message: str | None


@frozen
class ProducePartitionResponse(Message):
    """`base_offset` is that of the first record, also when the batch was a repetition.

    `record_errors` names the records for which the batch was refused, if single records are the reason.
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
    """One entry for each partition of the request, in its order."""

    partitions: tuple[ProducePartitionResponse, ...]


@frozen
class ProduceRequest(Request):
    """`acks` is 0 (no answer comes), 1 (the leader's log) or −1 (the whole ISR, within `timeout_ms`)."""

    acks: int
    timeout_ms: int
    partitions: tuple[ProducePartition, ...]

    api = ApiKey.PRODUCE
    response = ProduceResponse
    versions = (0, 1)


# --- Fetch -------------------------------------------------------------------------------------------


@frozen
class FetchPartition(Message):
    """`log_start_offset` is the follower's, −1 from consumers; an empty `topic_id` is not checked."""

    topic: str
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    partition_max_bytes: int
    log_start_offset: int = -1
    topic_id: str = ""


@frozen
class FetchPartitionResponse(Message):
    """`records` are whole batches from the file; the first may begin before `fetch_offset`. None: nothing to read."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer | None = None


@frozen
class FetchResponse(Response):
    """To a consumer one entry for each partition of the request, in its order; to a follower those with news.

    `session_id` is what its next fetches name, 0 where none is kept.
    """

    partitions: tuple[FetchPartitionResponse, ...]
    session_id: int = 0


@frozen
class ForgottenPartition(Message):
    """What a follower fetches no longer."""

    topic: str
    partition: int


@frozen
class FetchRequest(Request):
    """Waits up to `max_wait_ms` for `min_bytes`.

    `replica_id` ≥ 0 is a follower, and its `fetch_offset` is its log end offset: the fetch is the acknowledgement.
    A `session_epoch` of 0 begins a session, the next fetches of which count from 1, name only what has changed
    and stand for all the rest (KIP-227); −1 asks for none.
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
    """`timestamp` in ms, or −1 latest, −2 earliest, −3 the largest timestamp."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = -1


@frozen
class ListOffsetsPartitionResponse(Message):
    """`offset` and `timestamp` are −1 where no record qualifies."""

    topic: str
    partition: int
    error_code: int
    timestamp: int = NO_TIMESTAMP
    offset: int = -1
    leader_epoch: int = -1


@frozen
class ListOffsetsResponse(Response):
    """One entry for each partition of the request, in its order."""

    partitions: tuple[ListOffsetsPartitionResponse, ...]


@frozen
class ListOffsetsRequest(Request):
    """Offsets by time; only the leader answers (but for `replica_id` −2, which may ask a follower)."""

    partitions: tuple[ListOffsetsPartition, ...]
    replica_id: int = CONSUMER_REPLICA_ID
    isolation_level: int = READ_UNCOMMITTED

    api = ApiKey.LIST_OFFSETS
    response = ListOffsetsResponse


# --- Metadata ----------------------------------------------------------------------------------------


@frozen
class BrokerAddress(Message):
    """Where clients reach a live broker."""

    broker_id: int
    host: str
    port: int


@frozen
class PartitionMetadata(Message):
    """`leader` is −1 while there is none (`error_code` LEADER_NOT_AVAILABLE)."""

    partition: int
    error_code: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@frozen
class TopicMetadata(Message):
    """`topic_id` is the UUID in Kafka's base64url form, empty with an error."""

    name: str
    error_code: int
    topic_id: str = ""
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()


@frozen
class MetadataResponse(Response):
    """The answering broker's picture of the cluster."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerAddress, ...]
    topics: tuple[TopicMetadata, ...]


@frozen
class MetadataRequest(Request):
    """`topics` None asks for all."""

    topics: tuple[str, ...] | None = None

    api = ApiKey.METADATA
    response = MetadataResponse


# --- OffsetForLeaderEpoch ----------------------------------------------------------------------------


@frozen
class EpochPartition(Message):
    """Asks where `leader_epoch` ends in the leader's log."""

    topic: str
    partition: int
    current_leader_epoch: int
    leader_epoch: int


@frozen
class EpochEndOffset(Message):
    """The largest epoch ≤ the asked one, and where it ends (exclusive); (−1, −1) where there is none."""

    topic: str
    partition: int
    error_code: int
    leader_epoch: int = -1
    end_offset: int = -1


@frozen
class OffsetForLeaderEpochResponse(Response):
    """One entry for each partition of the request, in its order."""

    partitions: tuple[EpochEndOffset, ...]


@frozen
class OffsetForLeaderEpochRequest(Request):
    """A follower aligns its log by this before its first fetch of an epoch (KIP-101, KIP-320)."""

    partitions: tuple[EpochPartition, ...]
    replica_id: int = CONSUMER_REPLICA_ID

    api = ApiKey.OFFSET_FOR_LEADER_EPOCH
    response = OffsetForLeaderEpochResponse


# --- InitProducerId ----------------------------------------------------------------------------------


@frozen
class InitProducerIdResponse(Response):
    """A producer id that nobody had before, with epoch 0."""

    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


@frozen
class InitProducerIdRequest(Request):
    """Any broker answers."""

    transactional_id: str | None = None

    api = ApiKey.INIT_PRODUCER_ID
    response = InitProducerIdResponse


# --- Topics ------------------------------------------------------------------------------------------


@frozen
class NewTopic(Message):
    """`num_partitions` and `replication_factor` of −1 take the broker's defaults; an `assignment` replaces both."""

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
    """One entry for each topic of the request, in its order."""

    topics: tuple[CreatedTopic, ...]


@frozen
class CreateTopicsRequest(Request):
    """To the controller. Answered when every partition has a leader, else REQUEST_TIMED_OUT (created all the same)."""

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
    """One entry for each topic of the request, in its order."""

    topics: tuple[DeletedTopic, ...]


@frozen
class DeleteTopicsRequest(Request):
    """To the controller."""

    topics: tuple[str, ...]
    timeout_ms: int

    api = ApiKey.DELETE_TOPICS
    response = DeleteTopicsResponse


# --- DescribeReplicas (ours): what only a partition's leader knows -----------------------------------


@frozen
class DescribePartition(Message):
    """Names a partition."""

    topic: str
    partition: int


@frozen
class ReplicasDescription(Message):
    """`log_end_offsets` has each replica's, as far as the leader knows it (−1: not heard of in this epoch)."""

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
    """One entry for each partition of the request, in its order."""

    partitions: tuple[ReplicasDescription, ...]


@frozen
class DescribeReplicasRequest(Request):
    """To each partition's leader."""

    partitions: tuple[DescribePartition, ...]

    api = ApiKey.DESCRIBE_REPLICAS
    response = DescribeReplicasResponse


#: What any client may ask.
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

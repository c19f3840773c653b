"""Define the typed messages of brokers and clients: one frozen dataclass each, a request after its response.

This module has the requests that clients send (and followers, which fetch as consumers do). Requests about settings,
deleted records and disks are in `tidelog.protocol.admin_messages`; those between the controller and the brokers are in
`tidelog.protocol.control_messages`. Between brokers a message is a msgpack array of its fields in order
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
    """The API of a request, with Kafka's numbers; numbers from 1000 on are Tidelog's own."""

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
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
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
    DESCRIBE_CLIENTS = 1005
    BROKER_IDENTITY = 1006


class Message:
    """Base class of all requests, responses and the messages nested in them."""

    __slots__ = ()


class Response(Message):
    """Base class of responses. Fields of later versions than the request's have their defaults."""

    __slots__ = ()


class Request(Message):
    """Base class of requests: the API, the class of the response, and the (lowest, highest) supported version."""

    __slots__ = ()
    api: ClassVar[ApiKey]
    response: ClassVar[type[Response]]
    versions: ClassVar[tuple[int, int]] = (0, 0)
    #: True for requests that only brokers and the controller may send; the listener for clients rejects them.
    between_brokers: ClassVar[bool] = False


# --- ApiVersions: the first request on every connection --------------------------------------------


@frozen
class ApiRange(Message):
    """The lowest and the highest version of one API that the broker supports."""

    api_key: int
    min_version: int
    max_version: int


@frozen
class ApiVersionsResponse(Response):
    """The identity of the answering broker, and the APIs that this listener accepts.

    monotonic_ms   the broker's monotonic clock at the answer; the deadlines of all later requests are stated on it
    """

    error_code: int
    cluster_id: str
    broker_id: int
    broker_epoch: int
    monotonic_ms: int
    apis: tuple[ApiRange, ...]


@frozen
class ApiVersionsRequest(Request):
    """The handshake; must be the first request. `client_software` is the sender's name and version, such as "x/1.0"."""

    client_software: str

    api = ApiKey.API_VERSIONS
    response = ApiVersionsResponse


# --- Produce -----------------------------------------------------------------------------------------


@frozen
class ProducePartition(Message):
    """The batch for one partition; `records` is exactly one RecordBatch v2."""

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
    """The outcome for one partition.

    base_offset          the offset of the batch's first record; for a repeated batch that of the first append; −1 with
                         any error, also if the batch is appended
    log_append_time_ms   the broker's time in the records, if the topic has LogAppendTime; else −1
    log_start_offset     of the leader's log; −1 with any error
    record_errors        the records because of which the batch was rejected, if single records are the cause
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
    """Appends batches; sent to the partitions' leader.

    acks         0: no answer, not even for errors; 1: the answer comes when the leader's log has the batches; −1: when
                 the whole ISR has them
    timeout_ms   partitions that are not acknowledged by then get REQUEST_TIMED_OUT, but stay appended
    """

    acks: int
    timeout_ms: int
    partitions: tuple[ProducePartition, ...]

    api = ApiKey.PRODUCE
    response = ProduceResponse
    versions = (0, 1)


# --- Fetch -------------------------------------------------------------------------------------------


@frozen
class FetchPartition(Message):
    """One partition to fetch.

    current_leader_epoch   the leader epoch that the sender knows; the leader rejects another one; −1: no check, which
                           only consumers may send
    fetch_offset           the offset of the first record to return
    partition_max_bytes    the limit for this partition; the first batch of an answer is sent even if it is larger
    log_start_offset       the follower's; −1 from consumers
    topic_id               the leader rejects another topic id; "": no check
    """

    topic: str
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    partition_max_bytes: int
    log_start_offset: int = -1
    topic_id: str = ""


@frozen
class FetchPartitionResponse(Message):
    """The data of one partition, or an error.

    records          whole batches, of which the first may begin before `fetch_offset`; None if there is no data
    high_watermark   −1 with an error; with OFFSET_OUT_OF_RANGE it is set, like the log start offset
    """

    topic: str
    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer | None = None


@frozen
class FetchResponse(Response):
    """The answer. A consumer gets an entry for each partition of the request, in order.

    A follower gets only partitions with records, an error, or a changed high watermark or log start offset.
    `session_id` identifies the fetch session in the next fetches; 0 if there is none.
    """

    partitions: tuple[FetchPartitionResponse, ...]
    session_id: int = 0


@frozen
class ForgottenPartition(Message):
    """A partition that the follower removes from its fetch session."""

    topic: str
    partition: int


@frozen
class FetchRequest(Request):
    """Fetches records; sent to the partitions' leader, which waits up to `max_wait_ms` for `min_bytes` or an error.

    `replica_id` ≥ 0 is a follower's. Its `fetch_offset` is its log end offset, so that the fetch acknowledges all
    records below; the leader answers it as soon as there are any records. Only followers have sessions (KIP-227):
    `session_epoch` −1 requests none, 0 begins one, and the next fetches of the session count from 1. Each also covers
    the partitions that earlier fetches of the session named, until the leader answers one with records or an error.
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
    """One partition to look up.

    timestamp              in ms; or −1 for the end offset, −2 for the start offset, −3 for the record with the largest
                           timestamp
    current_leader_epoch   the leader epoch that the sender knows; the leader rejects another one; −1: no check
    """

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = -1


@frozen
class ListOffsetsPartitionResponse(Message):
    """The found offset, with the timestamp (ms) of its record and the leader epoch of that record.

    `offset` and `timestamp` are −1 if no record qualifies. `timestamp` is −1 also for the start and the end offset. For
    the end offset, `leader_epoch` is the latest epoch of the log. `leader_epoch` is −1 if it is not known. If the
    records cannot be read, `offset` says where, beside the error.
    """

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
    """Looks up offsets by time; the leader answers, or any replica if `replica_id` is −2.

    For consumers (`replica_id` −1) the log ends at the high watermark, for all others at the log end offset.
    """

    partitions: tuple[ListOffsetsPartition, ...]
    replica_id: int = CONSUMER_REPLICA_ID
    isolation_level: int = READ_UNCOMMITTED

    api = ApiKey.LIST_OFFSETS
    response = ListOffsetsResponse


# --- Metadata ----------------------------------------------------------------------------------------


@frozen
class BrokerAddress(Message):
    """The address of a live broker on the listener to which the request was sent; `rack` is None if it has none."""

    broker_id: int
    host: str
    port: int
    rack: str | None = field(default=None, metadata=since(2))


@frozen
class PartitionMetadata(Message):
    """One partition. `leader` is −1 with LEADER_NOT_AVAILABLE if no live broker leads it.

    `leader` is −1 with LISTENER_NOT_FOUND if the leader has no listener of the request's name. `offline_replicas` are
    the replicas on brokers that are not live. A partition whose state the answering broker does not know yet has no
    leader, the leader epoch −1 and no replicas.
    """

    partition: int
    error_code: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@frozen
class TopicMetadata(Message):
    """One topic with its partitions in order, or an error.

    `topic_id` is the UUID in Kafka's base64url form; "" with an error, or if the broker does not know it yet.
    """

    name: str
    error_code: int
    topic_id: str = ""
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()


@frozen
class MetadataResponse(Response):
    """The cluster's metadata as the answering broker knows it.

    controller_id   −1 if the controller is not known, or cannot be reached on the listener of the request
    brokers         the live brokers with such a listener, by id
    topics          in the order of the request, without repetitions; sorted by name if it asks for all
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerAddress, ...]
    topics: tuple[TopicMetadata, ...]


@frozen
class MetadataRequest(Request):
    """Requests metadata; any broker answers. `topics` None asks for all topics, and () for none.

    allow_auto_topic_creation   named topics that do not exist are created if the broker's settings allow it
    """

    topics: tuple[str, ...] | None = None
    allow_auto_topic_creation: bool = field(default=False, metadata=since(1))

    api = ApiKey.METADATA
    response = MetadataResponse
    versions = (0, 2)


# --- OffsetForLeaderEpoch ----------------------------------------------------------------------------


@frozen
class EpochPartition(Message):
    """One partition, with the leader epoch whose end in the leader's log is requested.

    `current_leader_epoch` is the epoch that the sender knows; the leader rejects another one; −1: no check.
    """

    topic: str
    partition: int
    current_leader_epoch: int
    leader_epoch: int


@frozen
class EpochEndOffset(Message):
    """The largest epoch up to the requested one in the leader's log, and the offset after its last record.

    If all epochs of the log are later: the requested epoch, and the offset at which the first one begins. Both are −1
    if the requested epoch is negative or later than the log's latest, and with an error.
    """

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
    """Asks the partitions' leader where leader epochs end in its log.

    A follower truncates its log by the answer before it fetches (KIP-101); a consumer detects truncation (KIP-320).
    """

    partitions: tuple[EpochPartition, ...]
    replica_id: int = CONSUMER_REPLICA_ID

    api = ApiKey.OFFSET_FOR_LEADER_EPOCH
    response = OffsetForLeaderEpochResponse


# --- InitProducerId ----------------------------------------------------------------------------------


@frozen
class InitProducerIdResponse(Response):
    """A producer id that was never given out before, with epoch 0; both are −1 with an error."""

    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


@frozen
class InitProducerIdRequest(Request):
    """Requests a producer id; any broker answers. A `transactional_id` other than None gets INVALID_REQUEST."""

    transactional_id: str | None = None

    api = ApiKey.INIT_PRODUCER_ID
    response = InitProducerIdResponse


# --- Topics ------------------------------------------------------------------------------------------


@frozen
class NewTopic(Message):
    """A topic to create; −1 means the broker's default.

    `assignment` has the replicas of each partition, the preferred leader first; with it both numbers must be −1. None:
    the controller places the replicas.

    Example:

        admin.create_topics([NewTopic("payments", 6, 3, configs={"retention.ms": "604800000"})])
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignment: dict[int, tuple[int, ...]] | None = None
    configs: dict[str, str] | None = None


@frozen
class CreatedTopic(Message):
    """The outcome for one topic. The two numbers are those of the new topic; −1 with an error.

    With REQUEST_TIMED_OUT, a `topic_id` means that the topic is created, but that partitions have no leader yet. With
    `validate_only`, `topic_id` is "" and the numbers are those that the topic would have.
    """

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
    """Creates topics; sent to the controller. `validate_only` checks the request and creates nothing.

    The answer comes when every partition has a leader that has confirmed, or after `timeout_ms`. A topic with
    REQUEST_TIMED_OUT may be created nevertheless, as its message says.
    """

    topics: tuple[NewTopic, ...]
    timeout_ms: int
    validate_only: bool = False

    api = ApiKey.CREATE_TOPICS
    response = CreateTopicsResponse


@frozen
class DeletedTopic(Message):
    """The outcome for one topic; with REQUEST_TIMED_OUT its deletion may continue, as the message says."""

    name: str
    error_code: int
    error_message: str | None = None


@frozen
class DeleteTopicsResponse(Response):
    """The answer, with one entry for each topic of the request, in order."""

    topics: tuple[DeletedTopic, ...]


@frozen
class DeleteTopicsRequest(Request):
    """Deletes topics; sent to the controller.

    The answer comes when ZooKeeper and all live brokers have deleted the topics, or after `timeout_ms`.

    topic_ids   the ids that these topics must have: a topic that was created again has another one, and stays
    """

    topics: tuple[str, ...]
    timeout_ms: int
    topic_ids: dict[str, str] | None = field(default=None, metadata=since(1))

    api = ApiKey.DELETE_TOPICS
    response = DeleteTopicsResponse
    versions = (0, 1)


# --- DescribeReplicas (Tidelog's own): facts that only a partition's leader knows ---------------------


@frozen
class DescribePartition(Message):
    """A partition's topic and number, in requests of every kind."""

    topic: str
    partition: int


@frozen
class ReplicasDescription(Message):
    """A partition as its leader knows it, or an error.

    `log_end_offset` is the leader's own. `log_end_offsets` has every replica's by broker id. A follower has −1 until it
    fetches in this leader epoch, and again after it registered anew or another broker removed it from the ISR.
    """

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
    """Describes replicas; sent to the partitions' leader. Other brokers answer NOT_LEADER_OR_FOLLOWER."""

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

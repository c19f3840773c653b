"""Define the requests of an operator's commands to single brokers (Tidelog's own; numbers from 1001 on).

The form is that of `tidelog.protocol.messages`. Each broker answers for itself, as leader or follower. Answers are
small, even if the broker holds much data. `…_ago_ms` is how long ago an event was, −1 if it never occurred.
"""

from __future__ import annotations

from dataclasses import field

from tidelog.frozen_dataclass import frozen, since
from tidelog.protocol.messages import ApiKey, Message, Request, Response

# --- ExamineReplica: one broker's replica of one partition ---------------------------------------------


@frozen
class FollowerReport(Message):
    """A follower as the leader knows it in the current leader epoch.

    registered         whether the broker is live, as the controller reported to the leader
    log_end_offset     −1: no fetch in this epoch, or none since the broker registered again, or since another broker
                       removed it from the ISR. Both times are then −1, too
    caught_up_ago_ms   time since the follower had the leader's whole log. If it has not had it in this epoch: the time
                       since the leader learned of it, plus the maximum lag and 1 ms if it was not in the ISR then
    fetched_ago_ms     time since the follower's last fetch
    """

    broker_id: int
    registered: bool
    log_end_offset: int
    caught_up_ago_ms: int
    fetched_ago_ms: int


@frozen
class SegmentReport(Message):
    """The oldest segment of a log.

    end_offset          the offset after its last record
    largest_timestamp   the largest timestamp (ms) of its records
    last_write_ms       the time by which retention judges the segment: `largest_timestamp`, or the time of its file if
                        that is not plausible
    """

    end_offset: int
    size_bytes: int
    largest_timestamp: int
    last_write_ms: int


@frozen
class RetentionReport(Message):
    """The size of a replica's log, and which part of it retention may delete.

    segments            the number of segments
    deletable           the number of oldest segments that the next check deletes
    deletes             whether the topic's cleanup.policy includes `delete`
    retention_ms        the topic's retention.ms; −1: no limit
    retention_bytes     the topic's retention.bytes; −1: no limit
    check_interval_ms   the interval between checks
    """

    segments: int
    size_bytes: int
    deletable: int
    deletes: bool
    retention_ms: int
    retention_bytes: int
    check_interval_ms: int
    oldest: SegmentReport | None = None


@frozen
class ReplicaReport(Message):
    """A replica as its broker knows it. Fields that only a leader knows are empty in other roles.

    role                 "leader", "follower", "stopped" or "offline" (disk failed)
    leader               the leader as this broker knows it, −1 for none
    proposed_isr         the ISR that the leader asks ZooKeeper to write; empty if no write is pending
    max_lag_ms           after this time without being caught up, a follower leaves the ISR
    epoch_start_offset   until the high watermark reaches it, the leader does not report where the committed log ends;
                         −1 for followers
    synced_end           the flushed offset, if acknowledgements wait for a flush; else −1
    cut_off              the broker has had no contact with ZooKeeper for a session timeout, or is shutting down
    unclean_election     the topic's unclean.leader.election.enable
    retention            None if the replica is offline
    """

    role: str
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    proposed_isr: tuple[int, ...]
    min_insync_replicas: int
    max_lag_ms: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    epoch_start_offset: int
    synced_end: int
    cut_off: bool
    unclean_election: bool
    followers: tuple[FollowerReport, ...]
    retention: RetentionReport | None = None


@frozen
class ExamineReplicaResponse(Response):
    """The answer; `now_ms` is the broker's wall clock, and `replica` is None with an error."""

    error_code: int
    now_ms: int = -1
    replica: ReplicaReport | None = None


@frozen
class ExamineReplicaRequest(Request):
    """Asks one broker for all that it knows of its replica of a partition, whatever the replica's role is.

    The broker also answers if the disk of the replica has failed.
    """

    topic: str
    partition: int

    api = ApiKey.EXAMINE_REPLICA
    response = ExamineReplicaResponse


# --- DescribeBroker: one process and its machine -------------------------------------------------------


@frozen
class LogDirectoryReport(Message):
    """A log directory and its file system. The sizes are −1 if the file system cannot be queried.

    `error` says why the directory is offline or the file system cannot be queried; "" if it works.
    """

    path: str
    error: str
    total_bytes: int = -1
    free_bytes: int = -1
    total_inodes: int = -1
    free_inodes: int = -1


@frozen
class DescribeBrokerResponse(Response):
    """The answer; `not_ready` says in one line why the broker is not fully ready, None if it is.

    now_ms                  the broker's wall clock
    partitions              the number of replicas that the broker hosts
    open_files              number of open file descriptors; −1: not known
    open_files_limit        the most that the process may open; −1: no limit
    zookeeper               the broker's setting: "host:port,…" with an optional chroot
    zookeeper_silence_ms    time since the last request that ZooKeeper confirmed
    max_partitions          the broker's value of max.broker.partitions
    memory_bytes            resident memory of the process
    total_memory_bytes      memory of the machine, or the limit of the container if that is smaller
    free_memory_bytes       the part of it that processes can still get, which includes caches that the system can drop
    connections             the connections of clients
    max_connections         the most connections of clients that the broker accepts

    The last six are −1 if they are not known.
    """

    error_code: int
    broker_id: int
    software_version: str
    now_ms: int
    uptime_ms: int
    partitions: int
    open_files: int
    open_files_limit: int
    zookeeper: str
    zookeeper_silence_ms: int
    zookeeper_session_timeout_ms: int
    not_ready: str | None
    log_directories: tuple[LogDirectoryReport, ...]
    max_partitions: int = field(default=-1, metadata=since(1))
    memory_bytes: int = field(default=-1, metadata=since(1))
    total_memory_bytes: int = field(default=-1, metadata=since(1))
    free_memory_bytes: int = field(default=-1, metadata=since(1))
    connections: int = field(default=-1, metadata=since(1))
    max_connections: int = field(default=-1, metadata=since(1))


@frozen
class DescribeBrokerRequest(Request):
    """Asks one broker for the state of its process, its log directories and its ZooKeeper session."""

    api = ApiKey.DESCRIBE_BROKER
    response = DescribeBrokerResponse
    versions = (0, 1)


# --- DescribeClients: the connections of one broker's clients ------------------------------------------


@frozen
class ApiUse(Message):
    """How many requests of one API and version a connection has sent."""

    api_key: int
    version: int
    requests: int


@frozen
class TopicUse(Message):
    """Topics that a connection uses: the first 50 in alphabetical order, and how many there are.

    complete   False if there are more, which the broker has not counted
    """

    topics: tuple[str, ...]
    count: int
    complete: bool


@frozen
class ConnectionReport(Message):
    """One connection of a client.

    client_id          what the client calls itself, shortened to 200 characters; it may have any characters
    software_name      from ApiVersions (KIP-511), as the version; "" unless the client has stated both
    port               −1 if the broker does not know it
    apis               in the order of their numbers
    reads, writes      the existing topics that its Fetch and Produce requests have named
    received_bytes     bytes that the client has sent; `sent_bytes` are those that the broker has sent to it
    age_ms             time since the connection was opened
    idle_ms            time since the last request on the connection
    """

    client_id: str
    software_name: str
    software_version: str
    host: str
    port: int
    listener: str
    apis: tuple[ApiUse, ...]
    reads: TopicUse
    writes: TopicUse
    received_bytes: int
    sent_bytes: int
    age_ms: int
    idle_ms: int


@frozen
class DescribeClientsResponse(Response):
    """The answer, one part of the connections; to get the next part, ask with `next` as `after`. −1: there is none."""

    error_code: int
    connections: tuple[ConnectionReport, ...]
    next: int = -1


@frozen
class DescribeClientsRequest(Request):
    """Asks one broker for the connections of its clients over all listeners for clients.

    after    0 for the first part, `next` of the last answer for a further part
    topics   only connections that read or write one of these topics; empty: all
    """

    after: int = 0
    topics: tuple[str, ...] = ()

    api = ApiKey.DESCRIBE_CLIENTS
    response = DescribeClientsResponse


# --- BrokerIdentity: which broker a connection leads to ------------------------------------------------


@frozen
class BrokerIdentityResponse(Response):
    """The answer: the ids of the cluster and of the broker."""

    cluster_id: str
    broker_id: int


@frozen
class BrokerIdentityRequest(Request):
    """Asks which broker the connection leads to, because Kafka's protocol does not tell."""

    api = ApiKey.BROKER_IDENTITY
    response = BrokerIdentityResponse


OPERATOR_REQUESTS: tuple[type[Request], ...] = (
    ExamineReplicaRequest,
    DescribeBrokerRequest,
    DescribeClientsRequest,
)

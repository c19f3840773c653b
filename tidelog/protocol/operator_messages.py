"""What an operator's commands ask of single brokers (ours; numbers from 1001 on).

Messages as in `tidelog.protocol.messages`. Each broker answers for itself, whether it leads or not; answers are small,
however much the broker holds. `…_ago_ms` is how long ago something was, −1 for never.
"""

from __future__ import annotations

from tidelog.frozen_dataclass import frozen
from tidelog.protocol.messages import ApiKey, Message, Request, Response

# --- ExamineReplica: one broker's replica of one partition ---------------------------------------------


@frozen
class FollowerReport(Message):
    """What the leader knows of one follower in its epoch. `log_end_offset` −1: it has not fetched in it.

    registered   a broker of this id is live, as the controller told the leader
    """

    broker_id: int
    registered: bool
    log_end_offset: int
    caught_up_ago_ms: int
    fetched_ago_ms: int


@frozen
class SegmentReport(Message):
    """The oldest segment. `last_write_ms` is its file's time where no record tells one that can be true."""

    end_offset: int
    size_bytes: int
    largest_timestamp: int
    last_write_ms: int


@frozen
class RetentionReport(Message):
    """What a replica's log holds, and what of it may go.

    deletable           how many of the oldest segments go at the next check
    check_interval_ms   how often it is checked
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
    """`role` is "leader", "follower", "stopped" or "offline" (its disk failed). What only a leader knows is empty else.

    leader               whom it believes to lead, −1 for nobody
    proposed_isr         what it asks ZooKeeper to write; empty where nothing is pending
    epoch_start_offset   until the high watermark reaches it, the leader does not tell where the committed log ends
    synced_end           up to where the disk has it, where an acknowledgement waits for that; else −1
    cut_off              it has not heard of ZooKeeper for a session timeout, or hands over what it leads
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
    """`now_ms` is the broker's wall clock."""

    error_code: int
    now_ms: int = -1
    replica: ReplicaReport | None = None


@frozen
class ExamineReplicaRequest(Request):
    """To any broker that has a replica."""

    topic: str
    partition: int

    api = ApiKey.EXAMINE_REPLICA
    response = ExamineReplicaResponse


# --- DescribeBroker: one process and its machine -------------------------------------------------------


@frozen
class LogDirectoryReport(Message):
    """A log directory and the file system below it. `error` says why it is offline, or "" where it works."""

    path: str
    error: str
    total_bytes: int = -1
    free_bytes: int = -1
    total_inodes: int = -1
    free_inodes: int = -1


@frozen
class DescribeBrokerResponse(Response):
    """`not_ready` says in one line why the broker does not serve all that it should; None where it does.

    now_ms                  the broker's wall clock
    open_files              descriptors, of at most `open_files_limit`
    zookeeper_silence_ms    since the last request that ZooKeeper confirmed
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


@frozen
class DescribeBrokerRequest(Request):
    """Any broker answers for itself."""

    api = ApiKey.DESCRIBE_BROKER
    response = DescribeBrokerResponse


OPERATOR_REQUESTS: tuple[type[Request], ...] = (ExamineReplicaRequest, DescribeBrokerRequest)

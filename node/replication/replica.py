"""One hosted replica: its log, and the rules of its partition.

Each request for a partition passes the checks here, so that an offline disk, a wrong leader epoch and a lost leadership
get the same answer everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from cluster.replication.follower import EpochView
from cluster.replication.partition import Partition
from node.events.recorder import NO_EVENTS, Events
from storage.configs.log_config import LogConfig
from storage.configs.parsers import INT64_MAX
from storage.log.batch_validation import ValidatedBatch
from storage.log.log_appender import AppendInfo
from storage.log.retention import SegmentFacts
from storage.segments.timestamp_search import TimestampOffset
from storage.steps import Steps
from tidelog.errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownLeaderEpochError,
)
from tidelog.model import Buffer, StoredBytes, TopicPartition

#: The `current_leader_epoch` of a request without an epoch check.
NO_EPOCH = -1


class ReplicaLog(EpochView, Protocol):
    """The part of `storage.log.log.Log` that replication uses, and that the in-memory log of the tests implements."""

    config: LogConfig
    truncation_count: int

    @property
    def topic_id(self) -> str: ...
    @property
    def recovery_point(self) -> int: ...
    @property
    def must_flush(self) -> bool: ...
    @property
    def segment_facts(self) -> Sequence[SegmentFacts]: ...
    @property
    def epochs(self) -> Sequence[tuple[int, int]]: ...
    def configure(self, config: LogConfig) -> None: ...
    def flush(self) -> None: ...
    def append_validated(self, batch: ValidatedBatch, leader_epoch: int, now_ms: int) -> AppendInfo: ...
    def find_repeated(self, batch: Buffer) -> AppendInfo | None: ...
    def append_as_follower(self, batches: Buffer, *, leader_log_start: int) -> object: ...
    def read(self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True) -> Buffer: ...
    def slice(
        self, offset: int, max_bytes: int, upper_bound: int, on_failure: Callable[[StorageError], None]
    ) -> StoredBytes | None: ...
    def bytes_between(self, offset: int, end_offset: int) -> int | None: ...
    def offset_for_timestamp_steps(self, timestamp: int, upper_bound: int) -> Steps[TimestampOffset | None]: ...
    def offset_of_max_timestamp_steps(self, upper_bound: int) -> Steps[TimestampOffset | None]: ...
    def segment_offsets(self, timestamp: int, max_num_offsets: int, now_ms: int) -> Sequence[int]: ...
    def epoch_at(self, offset: int) -> int | None: ...
    def assign_leader_epoch(self, epoch: int) -> None: ...
    def raise_log_start(self, offset: int) -> object: ...
    def delete_records(self, before_offset: int, high_watermark: int) -> int: ...
    def truncate_to(self, offset: int) -> object: ...
    def truncate_fully_and_start_at(self, offset: int) -> None: ...
    def lower_checkpoints_to_end(self) -> None: ...


class Replica:
    """A partition of which this broker has a log.

    offline          the log directory has failed, so every request is answered with KAFKA_STORAGE_ERROR
    damaged          the disk returns other bytes than were written, and other in-sync replicas have the right ones, so
                     this replica must not lead
    flushes          the topic sets `flush.messages`, so `flush_if_due` follows each append
    truncated_below  the lowest offset to which truncations have lowered the high watermark; records from there on are
                     no longer the committed ones
    events           records what happens to the log and to the partition
    throttled_as_leader, throttled_as_follower
                     the topic's settings name this replica, so that what it sends or fetches counts for a throttle

    `request_flush` begins to flush the log and returns at once. `on_storage_error` takes the log directory offline.
    `note_high_watermark` is called when the high watermark may differ from its checkpoint, but not for a leader's rise.
    """

    __slots__ = (
        "_note_high_watermark",
        "_on_storage_error",
        "_request_flush",
        "damaged",
        "events",
        "flushes",
        "log",
        "offline",
        "partition",
        "throttled_as_follower",
        "throttled_as_leader",
        "topic_id",
        "topic_partition",
        "truncated_below",
    )

    def __init__(
        self,
        topic_id: str,
        log: ReplicaLog,
        partition: Partition,
        request_flush: Callable[[Replica], object] = lambda replica: None,
        events: Events = NO_EVENTS,
        on_storage_error: Callable[[StorageError, TopicPartition], object] = lambda error, tp: None,
        note_high_watermark: Callable[[Replica], object] = lambda replica: None,
    ) -> None:
        self.topic_partition: TopicPartition = partition.topic_partition
        self.topic_id = topic_id
        self.log = log
        self.partition = partition
        self.events = events
        self.offline = False
        self.damaged = False
        self.flushes = False
        self.throttled_as_leader = self.throttled_as_follower = False
        self.truncated_below = INT64_MAX
        self._request_flush = request_flush
        self._on_storage_error = on_storage_error
        self._note_high_watermark = note_high_watermark

    def configure(self, config: LogConfig) -> bool:
        """Apply the topic's settings. Return whether a changed setting may hold back produces or the next fetch."""
        before, was_throttled = self.log.config, self.throttled_as_follower
        self.log.configure(config)
        self.partition.min_insync_replicas = config.min_insync_replicas
        self.flushes = config.flush_messages != INT64_MAX
        number, broker = self.topic_partition.partition, self.partition.broker_id
        self.throttled_as_leader = config.throttled_leaders.has(number, broker)
        self.throttled_as_follower = config.throttled_followers.has(number, broker)
        waits_for = (config.flush_messages, config.min_insync_replicas, self.throttled_as_follower)
        return waits_for != (before.flush_messages, before.min_insync_replicas, was_throttled)

    def replace_log(self, log: ReplicaLog) -> None:
        """Use another log with the same records from now on, because the replica has moved to its directory."""
        self.log = log
        self._note_high_watermark(self)
        self.flush_if_due()

    # --- flushing --------------------------------------------------------------------------------------------

    @property
    def flushed_offset(self) -> int | None:
        """Return the end of the flushed log if acknowledgements wait for flushes (`flush.messages=1`), else None."""
        return self.log.recovery_point if self.log.config.flush_messages == 1 else None

    @property
    def waits_for_disk(self) -> bool:
        """Return whether some records must be flushed before they may be acknowledged."""
        flushed_offset = self.flushed_offset
        return flushed_offset is not None and flushed_offset < self.log.log_end_offset

    def flush_if_due(self) -> None:
        """Begin a flush of the log if `flush.messages` asks for one now, and return at once.

        Also tell the partition's rules up to which offset the log is flushed.
        """
        if self.log.must_flush:
            self._request_flush(self)
        # Read after `must_flush`: if periodic work has just flushed the log, no flush of this object will report the
        # new offset.
        self.partition.flushed_offset = self.flushed_offset

    # --- appending and truncating ----------------------------------------------------------------------------

    def append_as_leader(self, batch: ValidatedBatch, now_ms: int) -> AppendInfo:
        """Append a batch in this broker's leader epoch, or find the first append of a repeated batch.

        Raise StorageError if the disk fails, OutOfOrderSequenceError, or InvalidProducerEpochError.
        """
        appended = self.log.append_validated(batch, self.partition.leader_epoch, now_ms)
        if not appended.duplicate:
            self.events.append(self.partition, appended.base_offset, self.log.log_end_offset)
        return appended

    def append_as_follower(self, batches: Buffer, leader_log_start: int) -> None:
        """Append whole batches of the leader's log at the end of this log, with their offsets, epochs and timestamps.

        Raises StorageError if the disk fails, and other BrokerErrors if the batches are invalid.
        """
        end = self.log.log_end_offset
        self.log.append_as_follower(batches, leader_log_start=leader_log_start)
        self.events.append(self.partition, end, self.log.log_end_offset)

    def truncate_to(self, offset: int) -> bool:
        """Remove the batch that holds `offset`, and all after it. Return True if that lowered the high watermark."""
        self.log.truncate_to(offset)
        return self._was_cut("the leader's epochs")

    def restart_log(self, offset: int) -> bool:
        """Drop all records and begin the log at `offset`. Return True if that lowered the high watermark."""
        self.log.truncate_fully_and_start_at(offset)
        return self._was_cut("the leader's log begins later, or has nothing of it")

    def _was_cut(self, why: str) -> bool:
        self.events.truncate(self.topic_partition, self.log.log_end_offset, why)
        lowered = self.partition.truncated(self.log.log_start_offset, self.log.log_end_offset)
        self._note_high_watermark(self)  # a checkpoint in progress leaves a truncated log out
        if lowered:
            self.truncated_below = min(self.truncated_below, self.partition.high_watermark)
            self.events.hw(self.partition)
        return lowered

    def leader_reported(self, high_watermark: int) -> None:
        """Raise this follower's high watermark to the leader's, but not beyond its log end. A lower one is ignored."""
        if self.partition.leader_reported(high_watermark, self.log.log_end_offset):
            self._note_high_watermark(self)
            self.events.hw(self.partition)

    def storage_failed(self, error: StorageError) -> None:
        """Report this error, so that the log directory goes offline; an OutOfDescriptorsError is ignored."""
        self._on_storage_error(error, self.topic_partition)

    # --- checks of requests ----------------------------------------------------------------------------------

    def leads_in(self, leader_epoch: int) -> bool:
        """Return whether this broker leads the partition in that epoch, and its disk works."""
        return self.partition.is_leader and self.partition.leader_epoch == leader_epoch and not self.offline

    def online_or_raise(self) -> Replica:
        """Return this replica, or raise StorageError if its log directory is offline."""
        if self.offline:
            raise StorageError(f"the log directory of {self.topic_partition} is offline")
        return self

    def check_topic(self, topic_id: str) -> None:
        """Raise InconsistentTopicIdError if the sender means another topic of the same name. An empty id passes."""
        if topic_id not in ("", self.topic_id):
            raise InconsistentTopicIdError(
                f"{self.topic_partition}: this broker has topic id {self.topic_id}, the request has {topic_id}"
            )

    def leader_or_raise(self, current_leader_epoch: int = NO_EPOCH) -> Replica:
        """Return this replica if it leads, in the request's leader epoch (−1: in any), else raise the error to answer.

        Raise StorageError if the disk has failed, the errors of `check_epoch`, or NotLeaderOrFollowerError.
        """
        self.online_or_raise()
        self.check_epoch(current_leader_epoch)
        if not self.partition.is_leader:
            raise NotLeaderOrFollowerError(f"broker {self.partition.broker_id} does not lead {self.topic_partition}")
        return self

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Check the request's leader epoch against this broker's (KIP-320). −1 passes.

        Raise FencedLeaderEpochError if the request's epoch is older, or UnknownLeaderEpochError if it is later.
        """
        mine = self.partition.leader_epoch
        if current_leader_epoch in (NO_EPOCH, mine):
            return
        if current_leader_epoch < mine:
            raise FencedLeaderEpochError(
                f"{self.topic_partition}: leader epoch {current_leader_epoch} is older than the current epoch {mine}"
            )
        raise UnknownLeaderEpochError(
            f"{self.topic_partition}: leader epoch {current_leader_epoch} is later than this broker's epoch {mine}"
        )

    def is_in_range(self, fetch_offset: int) -> bool:
        """Return whether the offset is within the log or equal to its end."""
        return self.log.log_start_offset <= fetch_offset <= self.log.log_end_offset

    def in_range_or_raise(self, fetch_offset: int) -> None:
        """Raise OffsetOutOfRangeError if the offset is outside the log."""
        if not self.is_in_range(fetch_offset):
            log = self.log
            raise OffsetOutOfRangeError(
                f"{self.topic_partition}: offset {fetch_offset} is outside the log, "
                f"which holds {log.log_start_offset} to {log.log_end_offset}"
            )

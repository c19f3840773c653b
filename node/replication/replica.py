"""One hosted partition: its log and its rules side by side.

Whatever is asked of a partition passes through here once, so that an offline disk, a wrong epoch and a lost
leadership are answered the same everywhere.
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
from storage.log.retention import SegmentFacts
from storage.segments.timestamp_search import Searcher, TimestampOffset
from tidelog.errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownLeaderEpochError,
)
from tidelog.model import Buffer, TopicPartition

#: A request's `current_leader_epoch` that is not to be checked.
NO_EPOCH = -1


class Appended(Protocol):
    """What an append says: see `storage.log.log_appender.AppendInfo`."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def log_append_time_ms(self) -> int: ...
    @property
    def duplicate(self) -> bool: ...


class ReplicaLog(EpochView, Protocol):
    """What replication needs of `storage.log.log.Log`, and what its twin in the tests offers."""

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
    def flush(self) -> None: ...
    def append_validated(self, batch: ValidatedBatch, leader_epoch: int, now_ms: int) -> Appended: ...
    def find_repeated(self, batch: Buffer) -> Appended | None: ...
    def append_as_follower(self, batches: Buffer, *, leader_log_start: int) -> object: ...
    def read(self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True) -> Buffer: ...
    def bytes_between(self, offset: int, end_offset: int) -> int | None: ...
    def offset_for_timestamp(self, timestamp: int, upper_bound: int, search: Searcher) -> TimestampOffset | None: ...
    def offset_of_max_timestamp(self, upper_bound: int, search: Searcher) -> TimestampOffset | None: ...
    def segment_offsets(self, timestamp: int, max_num_offsets: int, now_ms: int) -> Sequence[int]: ...
    def epoch_at(self, offset: int) -> int | None: ...
    def assign_leader_epoch(self, epoch: int) -> None: ...
    def raise_log_start(self, offset: int) -> object: ...
    def delete_records(self, before_offset: int, high_watermark: int) -> int: ...
    def truncate_to(self, offset: int) -> object: ...
    def truncate_fully_and_start_at(self, offset: int) -> None: ...
    def give_up_beyond_end(self) -> None: ...


class Replica:
    """A partition that this broker has a log of.

    offline    the disk below failed: every request is answered with KAFKA_STORAGE_ERROR
    damaged    the disk gives back other bytes than were written, and others in sync have those: it is to lead no more
    flushes    the topic has a `flush.messages`, so that each append is followed by `flush_if_due`
    given_up   from there on what was committed is no more, since cuts have taken the high watermark down to it
    journal    told of what becomes of the log and of the partition

    `sync` is asked to have the log synced; it returns at once.
    """

    __slots__ = (
        "_sync",
        "damaged",
        "events",
        "flushes",
        "given_up",
        "log",
        "offline",
        "partition",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_id: str,
        log: ReplicaLog,
        partition: Partition,
        sync: Callable[[Replica], object] = lambda replica: None,
        events: Events = NO_EVENTS,
    ) -> None:
        self.topic_partition: TopicPartition = partition.topic_partition
        self.topic_id = topic_id
        self.log = log
        self.partition = partition
        self.events = events
        self.offline = False
        self.damaged = False
        self.flushes = False
        self.given_up = INT64_MAX
        self._sync = sync

    def configure(self, config: LogConfig) -> bool:
        """The topic has these settings from now on. True where an acknowledgement waits for others than before."""
        before, self.log.config = self.log.config, config
        self.partition.min_insync_replicas = config.min_insync_replicas
        self.flushes = config.flush_messages != INT64_MAX
        waits_for = (config.flush_messages, config.min_insync_replicas)
        return waits_for != (before.flush_messages, before.min_insync_replicas)

    # --- what is on the disk ---------------------------------------------------------------------------------

    @property
    def flushed_offset(self) -> int | None:
        """Up to where the log is synced, where an acknowledgement waits for that (`flush.messages=1`), else None."""
        return self.log.recovery_point if self.log.config.flush_messages == 1 else None

    @property
    def waits_for_disk(self) -> bool:
        """What the log holds may not all be acknowledged yet: some of it must be synced first."""
        flushed_offset = self.flushed_offset
        return flushed_offset is not None and flushed_offset < self.log.log_end_offset

    def flush_if_due(self) -> None:
        """Has the log synced where `flush.messages` asks for it by now; returns at once."""
        if self.log.must_flush:
            self._sync(self)
        # Read last: if somebody else synced the log just now, no sync of ours will tell.
        self.partition.flushed_offset = self.flushed_offset

    # --- what becomes of the log -----------------------------------------------------------------------------

    def append_as_leader(self, batch: ValidatedBatch, now_ms: int) -> Appended:
        """In the epoch that this broker leads in. StorageError."""
        appended = self.log.append_validated(batch, self.partition.leader_epoch, now_ms)
        if not appended.duplicate:
            self.events.append(self.partition, appended.base_offset, self.log.log_end_offset)
        return appended

    def append_as_follower(self, batches: Buffer, leader_log_start: int) -> None:
        """What the leader's log holds from the end of this one on. StorageError; other BrokerErrors: it is wrong."""
        end = self.log.log_end_offset
        self.log.append_as_follower(batches, leader_log_start=leader_log_start)
        self.events.append(self.partition, end, self.log.log_end_offset)

    def truncate_to(self, offset: int) -> bool:
        """Without what the leader does not have. True where that took the high watermark down."""
        self.log.truncate_to(offset)
        return self._was_cut("the leader's epochs")

    def restart_log(self, offset: int) -> bool:
        """Without anything, to begin at `offset`. True where that took the high watermark down."""
        self.log.truncate_fully_and_start_at(offset)
        return self._was_cut("the leader's log begins later, or has nothing of it")

    def _was_cut(self, why: str) -> bool:
        self.events.truncate(self.topic_partition, self.log.log_end_offset, why)
        lowered = self.partition.truncated(self.log.log_start_offset, self.log.log_end_offset)
        if lowered:
            self.given_up = min(self.given_up, self.partition.high_watermark)
            self.events.hw(self.partition)
        return lowered

    def leader_reported(self, high_watermark: int) -> None:
        """How far the leader's log is committed."""
        if self.partition.leader_reported(high_watermark, self.log.log_end_offset):
            self.events.hw(self.partition)

    # --- who may ask -----------------------------------------------------------------------------------------

    def leads_in(self, leader_epoch: int) -> bool:
        """This broker still leads the partition in that epoch."""
        return self.partition.is_leader and self.partition.leader_epoch == leader_epoch and not self.offline

    def online_or_raise(self) -> Replica:
        """StorageError where the disk is gone."""
        if self.offline:
            raise StorageError(f"the log directory of {self.topic_partition} is offline")
        return self

    def check_topic(self, topic_id: str) -> None:
        """The asking side must mean this topic, and not another of the name; empty, it does not know."""
        if topic_id not in ("", self.topic_id):
            raise InconsistentTopicIdError(f"{self.topic_partition} is of topic {self.topic_id} here, not {topic_id}")

    def leader_or_raise(self, current_leader_epoch: int = NO_EPOCH) -> Replica:
        """This replica where it leads in the epoch that the asking side believes in, else why it cannot answer."""
        self.online_or_raise()
        self.check_epoch(current_leader_epoch)
        if not self.partition.is_leader:
            raise NotLeaderOrFollowerError(f"broker {self.partition.broker_id} does not lead {self.topic_partition}")
        return self

    def check_epoch(self, current_leader_epoch: int) -> None:
        """The asking side and this broker must mean the same leader (KIP-320)."""
        mine = self.partition.leader_epoch
        if current_leader_epoch in (NO_EPOCH, mine):
            return
        if current_leader_epoch < mine:
            raise FencedLeaderEpochError(f"{self.topic_partition}: epoch {current_leader_epoch} is over, {mine} runs")
        raise UnknownLeaderEpochError(f"{self.topic_partition}: epoch {current_leader_epoch} is not known here yet")

    def is_in_range(self, fetch_offset: int) -> bool:
        """The offset is one to read from: within the log, or its end."""
        return self.log.log_start_offset <= fetch_offset <= self.log.log_end_offset

    def in_range_or_raise(self, fetch_offset: int) -> None:
        """OffsetOutOfRangeError for an offset that is not one to read from."""
        if not self.is_in_range(fetch_offset):
            log = self.log
            raise OffsetOutOfRangeError(
                f"{self.topic_partition} holds {log.log_start_offset} to {log.log_end_offset}, not {fetch_offset}"
            )

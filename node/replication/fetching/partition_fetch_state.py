"""The fetch state of one followed partition (Kafka's PartitionFetchState): build requests, apply answers to the log."""

from __future__ import annotations

import logging

from cluster.replication.follower import Following
from node.replication.replica import Replica
from tidelog.errors import (
    BrokerError,
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
    error_for,
)
from tidelog.protocol.messages import EpochEndOffset, EpochPartition, FetchPartition, FetchPartitionResponse

log = logging.getLogger(__name__)

#: Errors of normal operation: the leader learns of a new leader epoch earlier or later than this follower.
_TRANSIENT: tuple[type[BrokerError], ...] = (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)


class PartitionFetchState:
    """One followed replica in one leader epoch.

    ask            the partition's last entry in a fetch request, which later fetches of the session repeat implicitly;
                   None: the next fetch must name the partition. An answer counts only while `ask` is set
    requested_in   the number of the fetch that named the partition last; 0: no fetch covers it at the leader. Answers
                   to earlier fetches are about an older entry
    lags           the leader's high watermark, as answered last, lies beyond this log, so that the replica is not in
                   sync (Kafka's isReplicaInSync). Before the first answer: the replica is not in the ISR

    `epoch_answered` and `fetch_answered` raise StorageError if the disk fails, and other BrokerErrors if the answer is
    wrong.
    """

    __slots__ = ("ask", "following", "lags", "replica", "requested_in")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.following = Following(replica.partition.leader_epoch, replica.log)
        self.ask: FetchPartition | None = None
        self.requested_in = 0
        self.lags = replica.partition.broker_id not in replica.partition.isr

    # --- aligning the log with the leader's ------------------------------------------------------------------

    def epoch_entry(self) -> EpochPartition:
        """Return the entry of an OffsetForLeaderEpoch request that asks where this log's last epoch ends."""
        tp, following = self.replica.topic_partition, self.following
        return EpochPartition(tp.topic, tp.partition, following.leader_epoch, following.asked_epoch)

    def epoch_answered(self, answer: EpochEndOffset, now_ms: int) -> None:
        """Truncate the log as the answer requires. Fetch next, or align further if the logs may differ earlier.

        If the leader answers an error or does not know the epoch, delay the partition's next request instead.
        """
        following, replica = self.following, self.replica
        log_ = replica.log
        if error := error_for(answer.error_code):
            following.failed(error, -1, log_, now_ms)
            return
        decision = following.epoch_answered(log_, answer.leader_epoch, answer.end_offset, now_ms)
        if decision is None:
            log.warning("%s: the leader does not know epoch %d", replica.topic_partition, following.asked_epoch)
            return
        if decision.offset < log_.log_start_offset:
            self._restart_log(decision.offset)
        elif decision.offset < log_.log_end_offset:
            log.info("%s: truncated from %d to %d", replica.topic_partition, log_.log_end_offset, decision.offset)
            self._warn_if_lowered(replica.truncate_to(decision.offset))
        else:
            log_.truncate_to(decision.offset)  # no records to remove, only the entry of an epoch that began there
        following.truncated(decision, log_)

    # --- fetching --------------------------------------------------------------------------------------------

    def add_to_request(self, max_bytes: int, fetch: int) -> FetchPartition:
        """Return this partition's entry in the fetch numbered `fetch`, from the log end offset on; it becomes `ask`."""
        tp, log_ = self.replica.topic_partition, self.replica.log
        leader_epoch = self.following.leader_epoch
        self.ask = FetchPartition(
            tp.topic,
            tp.partition,
            leader_epoch,
            log_.log_end_offset,
            max_bytes,
            log_.log_start_offset,
            self.replica.topic_id,
        )
        self.requested_in = fetch
        return self.ask

    def dropped(self) -> None:
        """Note that no fetch covers this partition at the leader any more."""
        self.ask, self.requested_in = None, 0

    def is_current(self, ask: FetchPartition) -> bool:
        """Return whether the log still ends at the fetch offset of `ask`. If not, the answer is about an older log."""
        return self.replica.log.log_end_offset == ask.fetch_offset

    def fetch_answered(self, answer: FetchPartitionResponse, now_ms: int) -> None:
        """Append the records of the answer, and take over the leader's high watermark and log start offset.

        The high watermark stays within this log, and the log start offset at or below the high watermark.
        After an error answer, delay the partition's next request, align again, or restart the log at the leader's log
        start, as `Following.failed` decides.
        """
        following, replica = self.following, self.replica
        self.ask = None
        if error := error_for(answer.error_code):
            level = logging.DEBUG if isinstance(error, _TRANSIENT) else logging.WARNING
            log.log(level, "%s: broker %d: %s", replica.topic_partition, replica.partition.leader, error)
            restart = following.failed(error, answer.log_start_offset, replica.log, now_ms)
            if restart is not None:
                self._restart_log(restart.offset)
            return
        if (restart := following.restart_if_below_leader_start(answer.log_start_offset, replica.log)) is not None:
            self._restart_log(restart.offset)
        if answer.records:
            replica.append_as_follower(answer.records, answer.log_start_offset)
        self.leader_reported(answer.high_watermark)
        # This log drops what the leader has dropped, but never records that may be uncommitted.
        replica.log.raise_log_start(min(answer.log_start_offset, replica.partition.high_watermark))

    def leader_reported(self, high_watermark: int) -> None:
        """Take over the high watermark of a successful answer, within this log, and note whether this log lags."""
        self.following.fetched()
        self.replica.leader_reported(high_watermark)
        self.lags = high_watermark > self.replica.log.log_end_offset

    # --- truncating ------------------------------------------------------------------------------------------

    def _restart_log(self, offset: int) -> None:
        log_ = self.replica.log
        log.warning("%s: dropping [%d, %d), restarting at %d", self.replica.topic_partition, log_.log_start_offset,
                    log_.log_end_offset, offset)  # fmt: skip
        self._warn_if_lowered(self.replica.restart_log(offset))

    def _warn_if_lowered(self, lowered: bool) -> None:
        if lowered:
            log.warning("%s: truncated below the high watermark", self.replica.topic_partition)

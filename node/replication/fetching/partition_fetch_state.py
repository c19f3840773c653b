"""One partition that this broker follows: what to ask its leader, and what to do to the log upon the answers."""

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

#: Refusals in normal operation: the leader has learned of the new epoch later than this follower, or earlier.
_TRANSIENT: tuple[type[BrokerError], ...] = (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)


class PartitionFetchState:
    """A replica in one leader epoch.

    ask        what the leader was told of it last, and the next fetch stands for; None: it must be named, as soon as it
               may be fetched. An answer counts only while this stands
    named_in   the number of the fetch that named it, the answer to which is the first that is about it; 0 while no
               fetch stands for it at the leader

    Taking over an answer raises StorageError where the disk fails, and other BrokerErrors where the answer is wrong.
    """

    __slots__ = ("ask", "following", "named_in", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.following = Following(replica.partition.leader_epoch, replica.log)
        self.ask: FetchPartition | None = None
        self.named_in = 0

    # --- aligning --------------------------------------------------------------------------------------------

    def question(self) -> EpochPartition:
        """Where the log's last epoch ends at the leader."""
        tp, following = self.replica.topic_partition, self.following
        return EpochPartition(tp.topic, tp.partition, following.leader_epoch, following.asked_epoch)

    def epoch_answered(self, answer: EpochEndOffset, now_ms: int) -> None:
        """Cut what the leader does not have."""
        following, replica = self.following, self.replica
        log_ = replica.log
        if error := error_for(answer.error_code):
            following.failed(error, -1, log_, now_ms)
            return
        decision = following.epoch_answered(log_, answer.leader_epoch, answer.end_offset, now_ms)
        if decision is None:
            log.warning("%s: the leader knows nothing of epoch %d", replica.topic_partition, following.asked_epoch)
            return
        if decision.offset < log_.log_start_offset:
            self._restart_log(decision.offset)
        elif decision.offset < log_.log_end_offset:
            log.info("%s: truncated from %d to %d", replica.topic_partition, log_.log_end_offset, decision.offset)
            self._told_if_lowered(replica.truncate_to(decision.offset))
        else:
            log_.truncate_to(decision.offset)  # of an epoch that began there
        following.truncated(decision, log_)

    # --- fetching --------------------------------------------------------------------------------------------

    def name(self, max_bytes: int, fetch: int) -> FetchPartition:
        """What the fetch of that number says: everything from the end of the log on."""
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
        self.named_in = fetch
        return self.ask

    def forgotten(self) -> None:
        """No fetch stands for it at the leader any more."""
        self.ask, self.named_in = None, 0

    def awaits(self, ask: FetchPartition) -> bool:
        """Else the answer is about a log that is no more."""
        return self.replica.log.log_end_offset == ask.fetch_offset

    def fetch_answered(self, answer: FetchPartitionResponse, now_ms: int) -> None:
        """Append what has come, and learn how far the leader's log is committed and where it begins."""
        following, replica = self.following, self.replica
        self.ask = None
        if error := error_for(answer.error_code):
            level = logging.DEBUG if isinstance(error, _TRANSIENT) else logging.WARNING
            log.log(level, "%s: broker %d: %s", replica.topic_partition, replica.partition.leader, error)
            restart = following.failed(error, answer.log_start_offset, replica.log, now_ms)
            if restart is not None:
                self._restart_log(restart.offset)
            return
        if (restart := following.begins_anew(answer.log_start_offset, replica.log)) is not None:
            self._restart_log(restart.offset)
        if answer.records:
            replica.append_as_follower(answer.records, answer.log_start_offset)
        following.fetched()
        replica.leader_reported(answer.high_watermark)
        # What the leader has dropped goes here too; never more than is known to be committed.
        replica.log.raise_log_start(min(answer.log_start_offset, replica.partition.high_watermark))

    # --- cutting ---------------------------------------------------------------------------------------------

    def _restart_log(self, offset: int) -> None:
        log_ = self.replica.log
        log.warning("%s: dropped [%d, %d), begins anew at %d", self.replica.topic_partition, log_.log_start_offset,
                    log_.log_end_offset, offset)  # fmt: skip
        self._told_if_lowered(self.replica.restart_log(offset))

    def _told_if_lowered(self, lowered: bool) -> None:
        if lowered:
            log.warning("%s: records below the high watermark were cut", self.replica.topic_partition)

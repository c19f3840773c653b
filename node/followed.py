"""One partition that this broker follows: what to ask its leader, and what to do to the log upon the answers."""

from __future__ import annotations

import logging

from cluster.follower import Following
from node.replica import Replica
from tidelog.errors import error_for
from tidelog.messages import EpochEndOffset, EpochPartition, FetchPartition, FetchPartitionResponse

log = logging.getLogger(__name__)


class Followed:
    """A replica in one leader epoch.

    ask   what the next fetch says of it; None while it aligns, waits after an error, or is no longer followed.
          An answer counts only for the very `ask` that stands here: any change of epoch or log end replaces it

    Taking over an answer raises StorageError where the disk fails, and other BrokerErrors where the answer is wrong.
    """

    __slots__ = ("ask", "following", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.following = Following(replica.partition.leader_epoch, replica.log)
        self.ask: FetchPartition | None = None

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
            log_.truncate_to(decision.offset)
            self._log_was_cut()
        following.truncated(decision, log_)

    # --- fetching --------------------------------------------------------------------------------------------

    def next_ask(self, max_bytes: int) -> FetchPartition:
        """The fetch from the end of the log."""
        tp, log_ = self.replica.topic_partition, self.replica.log
        leader_epoch = self.following.leader_epoch
        self.ask = FetchPartition(
            tp.topic, tp.partition, leader_epoch, log_.log_end_offset, max_bytes, log_.log_start_offset
        )
        return self.ask

    def awaits(self, ask: FetchPartition) -> bool:
        """Else the answer is about a log that is no more: of another epoch, with another end, or dropped."""
        return self.ask is ask and self.replica.log.log_end_offset == ask.fetch_offset

    def fetch_answered(self, answer: FetchPartitionResponse, now_ms: int) -> None:
        """Append what has come, and learn how far the leader's log is committed and where it begins."""
        following, replica = self.following, self.replica
        self.ask = None
        if error := error_for(answer.error_code):
            log.info("%s: broker %d: %s", replica.topic_partition, replica.partition.leader, error)
            restart = following.failed(error, answer.log_start_offset, replica.log, now_ms)
            if restart is not None:
                self._restart_log(restart.offset)
            return
        if answer.records:
            replica.log.append_as_follower(answer.records)
        following.fetched()
        replica.partition.leader_reported(answer.high_watermark, replica.log.log_end_offset)
        # What the leader has dropped goes here too; never more than is known to be committed.
        replica.log.raise_log_start(min(answer.log_start_offset, replica.partition.high_watermark))

    # --- cutting ---------------------------------------------------------------------------------------------

    def _restart_log(self, offset: int) -> None:
        log_ = self.replica.log
        log.warning("%s: dropped [%d, %d), begins anew at %d", self.replica.topic_partition, log_.log_start_offset,
                    log_.log_end_offset, offset)  # fmt: skip
        log_.truncate_fully_and_start_at(offset)
        self._log_was_cut()

    def _log_was_cut(self) -> None:
        log_ = self.replica.log
        if self.replica.partition.truncated(log_.log_start_offset, log_.log_end_offset):
            log.warning("%s: records below the high watermark were cut", self.replica.topic_partition)

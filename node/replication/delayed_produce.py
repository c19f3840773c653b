"""Produces that wait in a purgatory until their appends are replicated or flushed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cluster.replication.partition import Partition
from node.purgatory.delayed_response import DelayedResponse
from node.replication.replica import Replica
from tidelog.errors import NotEnoughReplicasAfterAppendError, NotLeaderOrFollowerError, RequestTimedOutError
from tidelog.protocol.messages import ProducePartitionResponse, ProduceResponse, Response


class PendingAppend(NamedTuple):
    """A batch in the leader's log. acks=all waits, in this epoch, until the high watermark reaches `required_offset`.

    response   the answer if the append is acknowledged
    """

    replica: Replica
    leader_epoch: int
    required_offset: int
    response: ProducePartitionResponse


def too_few_in_sync(partition: Partition) -> str:
    """Return the error message for a produce with acks=all to a partition with fewer in-sync replicas than it needs."""
    return (
        f"{partition.topic_partition}: in-sync replicas: {partition.in_sync_count} of {len(partition.replicas)}; "
        f"acks=all needs {partition.effective_min_isr} (min.insync.replicas={partition.min_insync_replicas})"
    )


class DelayedProduce(DelayedResponse):
    """A produce with acks=all that waits until each of its appends is decided. The first true case decides, for good:

    A. The leader epoch of the append has ended, or the disk has failed: NOT_LEADER_OR_FOLLOWER, because this broker
       does not know which records the next leader has kept.
    B. The high watermark has reached the required offset: success, or NOT_ENOUGH_REPLICAS_AFTER_APPEND if the ISR has
       become too small meanwhile.
    C. The deadline has passed: REQUEST_TIMED_OUT.

    If the broker stops before, an undecided append gets NOT_LEADER_OR_FOLLOWER.

    responses   the answers as if all appends were acknowledged
    pending     the appends that wait, by their positions in `responses`
    """

    __slots__ = ("_pending", "_responses")

    def __init__(
        self, deadline_ms: int, responses: list[ProducePartitionResponse], pending: Mapping[int, PendingAppend]
    ) -> None:
        super().__init__(deadline_ms)
        self._responses = responses
        self._pending = pending

    def is_satisfied(self) -> bool:
        self._pending = {index: each for index, each in self._pending.items() if not self._is_decided(index, each)}
        return not self._pending

    def _is_decided(self, index: int, append: PendingAppend) -> bool:
        replica = append.replica
        if not replica.leads_in(append.leader_epoch):
            self._fail(index, NotLeaderOrFollowerError.code)  # A
        elif replica.partition.high_watermark < append.required_offset:
            return False
        elif not replica.partition.is_at_least_min_isr:
            self._fail(index, NotEnoughReplicasAfterAppendError.code, too_few_in_sync(replica.partition))  # B
        else:
            replica.events.ack(replica.partition, replica.log.log_end_offset, append.required_offset)
        return True

    def answer(self) -> Response:
        for index in self._pending:
            self._fail(index, NotLeaderOrFollowerError.code)
        return ProduceResponse(tuple(self._responses))

    def on_expiration(self) -> None:
        for index in self._pending:
            self._fail(index, RequestTimedOutError.code)  # C
        self._pending = {}
        self.on_complete()

    def _fail(self, index: int, error_code: int, message: str | None = None) -> None:
        answered = self._responses[index]
        self._responses[index] = ProducePartitionResponse(
            answered.topic, answered.partition, error_code, error_message=message
        )


class FlushedProduce(DelayedProduce):
    """A produce with acks=1 to topics with `flush.messages=1`, which waits until this broker has flushed its log."""

    __slots__ = ()

    def _is_decided(self, index: int, append: PendingAppend) -> bool:
        replica = append.replica
        if not replica.leads_in(append.leader_epoch):
            self._fail(index, NotLeaderOrFollowerError.code)
            return True
        flushed_offset = replica.partition.flushed_offset
        return flushed_offset is None or flushed_offset >= append.required_offset

"""DeleteRecords: raise the log start offset of the leader, and wait until all live replicas have followed."""

from __future__ import annotations

from node.metadata.internal_topics import check_record_deletion
from node.net.server import RequestContext
from node.purgatory.delayed_response import DelayedResponse
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from storage.log.log import HIGH_WATERMARK
from tidelog.errors import (
    BrokerError,
    InvalidRequestError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    PolicyViolationError,
    RequestTimedOutError,
)
from tidelog.frozen_dataclass import frozen
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import (
    DeletedRecords,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from tidelog.protocol.messages import Response


@frozen
class PendingDeletion:
    """One partition of a waiting DeleteRecords.

    index           the partition's position in the answer
    leader_epoch    the leader epoch in which the records were deleted
    before_offset   the log start offset that all live replicas must reach
    """

    index: int
    replica: Replica
    leader_epoch: int
    before_offset: int

    @property
    def low_watermark(self) -> int:
        """Return the lowest log start offset of all live replicas; −1 while one of them has not reported its own."""
        return self.replica.partition.low_watermark(self.replica.log.log_start_offset)


class DelayedDeletion(DelayedResponse):
    """A DeleteRecords that waits until each partition's live replicas have the new log start.

    If a leader epoch ends before, the partition gets NOT_LEADER_OR_FOLLOWER. At the deadline the partition gets
    REQUEST_TIMED_OUT with the low watermark.
    """

    __slots__ = ("_pending", "_responses")

    def __init__(self, deadline_ms: int, responses: list[DeletedRecords], pending: list[PendingDeletion]) -> None:
        super().__init__(deadline_ms)
        self._responses = responses
        self._pending = pending

    def is_satisfied(self) -> bool:
        self._pending = [deletion for deletion in self._pending if not self._is_decided(deletion)]
        return not self._pending

    def _is_decided(self, deletion: PendingDeletion) -> bool:
        tp = deletion.replica.topic_partition
        if not deletion.replica.leads_in(deletion.leader_epoch):
            self._responses[deletion.index] = DeletedRecords(*tp, NotLeaderOrFollowerError.code)
            return True
        if deletion.low_watermark < deletion.before_offset:
            return False
        self._responses[deletion.index] = DeletedRecords(*tp, 0, deletion.low_watermark)
        return True

    def answer(self) -> Response:
        return DeleteRecordsResponse(tuple(self._responses))

    def on_expiration(self) -> None:
        for deletion in self._pending:
            self._responses[deletion.index] = DeletedRecords(
                *deletion.replica.topic_partition,
                RequestTimedOutError.code,
                deletion.low_watermark,
                f"{deletion.replica.topic_partition}: the leader's log starts at {deletion.before_offset}, "
                "but some live replicas have not followed yet",
            )
        self.on_complete()


async def delete_records(replicas: ReplicaManager, request: DeleteRecordsRequest, context: RequestContext) -> Response:
    """Delete the records before each partition's offset (−1: before the high watermark).

    Return one low watermark or one error for each partition, once all live replicas have followed, or as
    `DelayedDeletion` says. Raises InvalidRequestError if the timeout is negative.
    """
    if request.timeout_ms < 0:
        raise InvalidRequestError(f"timeout_ms={request.timeout_ms}: must be at least 0")
    due_ms = context.due_ms(replicas.clock.monotonic_ms(), request.timeout_ms)
    responses: list[DeletedRecords] = []
    pending: list[PendingDeletion] = []
    for index, part in enumerate(request.partitions):
        tp = TopicPartition(part.topic, part.partition)
        await replicas.loop_budget.yield_()
        began_ms = replicas.clock.monotonic_ms()
        try:
            pending.append(_delete(replicas, tp, part, index))
            responses.append(DeletedRecords(*tp, 0))
        except BrokerError as error:
            responses.append(DeletedRecords(*tp, replicas.code_of(error, tp), error_message=str(error)))
        replicas.loop_budget.charge(replicas.clock.monotonic_ms() - began_ms)
    delayed = DelayedDeletion(due_ms, responses, pending)
    keys = {deletion.replica.topic_partition for deletion in pending}
    replicas.purgatories.deletions.try_complete_else_watch(delayed, keys)
    return await delayed.response


def _delete(replicas: ReplicaManager, tp: TopicPartition, part: DeleteRecordsPartition, index: int) -> PendingDeletion:
    check_record_deletion(tp.topic)
    replica = replicas.get_or_raise(tp).leader_or_raise()
    log, partition = replica.log, replica.partition
    if not log.config.delete:
        raise PolicyViolationError(
            f"{tp}: cleanup.policy=compact: its records cannot be deleted; add 'delete' to cleanup.policy first"
        )
    high_watermark = partition.high_watermark
    if not partition.high_watermark_is_known and not 0 <= part.offset <= high_watermark:
        raise OffsetNotAvailableError(f"{tp}: the leader does not know the high watermark of its epoch yet; retry")
    before_offset = high_watermark if part.offset == HIGH_WATERMARK else part.offset
    before_start = log.log_start_offset
    if log.delete_records(part.offset, high_watermark) > before_start:
        replicas.purgatories.records_deleted(tp)
    return PendingDeletion(index, replica, partition.leader_epoch, before_offset)

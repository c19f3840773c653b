"""Append batches to the logs that this broker leads, and acknowledge them once acks and flush settings allow it."""

from __future__ import annotations

from collections.abc import Sequence

from node.replication.delayed_produce import DelayedProduce, FlushedProduce, PendingAppend, too_few_in_sync
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.runtime.deferred_response import DeferredResponse
from storage.log.batch_validation import ValidatedBatch, validate_own
from storage.log.log_appender import AppendInfo
from tidelog.errors import BrokerError, NotEnoughReplicasError, NotLeaderOrFollowerError
from tidelog.model import Buffer, TopicPartition
from tidelog.protocol.messages import ProducePartitionResponse, ProduceResponse, RecordError

ACKS_NONE = 0
ACKS_ALL = -1


#: An append, or the answer for a partition to which no batch was appended.
AppendOutcome = PendingAppend | ProducePartitionResponse


def _pending(appended: AppendInfo, replica: Replica) -> PendingAppend:
    response = ProducePartitionResponse(
        *replica.topic_partition,
        0,
        appended.base_offset,
        appended.log_append_time_ms,
        replica.log.log_start_offset,
    )
    return PendingAppend(replica, replica.partition.leader_epoch, appended.last_offset + 1, response)


class LeaderAppends:
    """Append batches of clients and of the broker itself. The batch is in the log on return; the answer may follow."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def leader_or_raise(self, replica: Replica, acks: int) -> Replica:
        """Return the replica if a batch with these `acks` may be appended to it, else raise a BrokerError.

        Raise the errors of `Replica.leader_or_raise`. acks=all also needs the minimum ISR (NotEnoughReplicasError).
        Other acks need a broker that is not cut off (NotLeaderOrFollowerError).
        """
        partition = replica.leader_or_raise().partition
        if acks == ACKS_ALL:
            if not partition.is_at_least_min_isr:
                raise NotEnoughReplicasError(too_few_in_sync(partition))
        elif self._replicas.cut_off:
            raise NotLeaderOrFollowerError(
                f"{replica.topic_partition}: broker {self._replicas.broker_id} is cut off from ZooKeeper or shuts "
                "down, so another broker may lead now"
            )
        return replica

    def append(self, replica: Replica, batch: ValidatedBatch) -> PendingAppend:
        """Append one batch to the leader's log. The caller has just called `leader_or_raise`.

        If an idempotent producer has repeated a batch, return its first append. Raise StorageError if the disk fails,
        and OutOfOrderSequenceError or InvalidProducerEpochError if the batch does not follow its producer's last one.
        """
        replicas, partition, log, tp = self._replicas, replica.partition, replica.log, replica.topic_partition
        clock = replicas.clock
        began_ms = clock.monotonic_ms()
        appended = replica.append_as_leader(batch, clock.now_ms())
        now_ms = clock.monotonic_ms()
        replicas.loop_budget.charge(now_ms - began_ms)
        if not appended.duplicate:  # a repetition changes nothing; its acknowledgement waits like the first one's
            replicas.purgatories.log_grew(tp)
            if replica.flushes:
                replica.flush_if_due()
            if partition.appended(log.log_end_offset, now_ms):
                replicas.high_watermark_rose(replica)
        return _pending(appended, replica)

    def repeated(self, replica: Replica, batch: Buffer, error: BrokerError) -> PendingAppend:
        """Return the earlier append of this batch if the batch is a repetition, else raise `error`.

        A retried batch must get its first answer even if the topic's settings would refuse it now.
        """
        appended = replica.log.find_repeated(batch)
        if appended is None:
            raise error
        return _pending(appended, replica)

    def nothing(self, replica: Replica) -> ProducePartitionResponse:
        """Return the answer for a message set without messages: success, and no offset, as from Kafka's brokers."""
        return ProducePartitionResponse(*replica.topic_partition, 0, log_start_offset=replica.log.log_start_offset)

    def error_response(self, tp: TopicPartition, error: BrokerError) -> ProducePartitionResponse:
        """Return the answer for a partition whose batch was refused.

        A StorageError other than OutOfDescriptorsError takes the log directory offline.
        """
        return ProducePartitionResponse(
            *tp,
            self._replicas.code_of(error, tp),
            error_message=str(error) or None,
            record_errors=tuple(RecordError(index, fault) for index, fault in error.record_errors.items()),
        )

    def append_own(self, tp: TopicPartition, batch: bytes, timeout_ms: int) -> ProduceResponse | DeferredResponse:
        """Append a batch that this broker has built, with acks=all, and return the answer that a producer would get.

        No BrokerError is raised. A deferred answer completes after `timeout_ms` at the latest.
        """
        try:
            replica = self.leader_or_raise(self._replicas.get_or_raise(tp), ACKS_ALL)
            outcome: AppendOutcome = self.append(replica, validate_own(batch, replica.log.config))
        except BrokerError as error:
            outcome = self.error_response(tp, error)
        return self.acknowledge([outcome], ACKS_ALL, self._replicas.clock.monotonic_ms() + timeout_ms)

    def acknowledge(
        self, outcomes: Sequence[AppendOutcome], acks: int, due_ms: int
    ) -> ProduceResponse | DeferredResponse:
        """Return the answer if all is acknowledged, else a deferred one, which completes at `due_ms` at the latest.

        The answer has one entry for each outcome, in their order; appends that time out get REQUEST_TIMED_OUT.

        With acks=all the answer waits for the high watermark. With acks=1 it waits only for the own disk, and only if
        the topic has `flush.messages=1`.
        """
        responses: list[ProducePartitionResponse] = []
        pending: dict[int, PendingAppend] = {}
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, ProducePartitionResponse):
                responses.append(outcome)
                continue
            responses.append(outcome.response)
            if acks == ACKS_ALL or outcome.replica.partition.flushed_offset is not None:
                pending[index] = outcome
        if not pending:
            return ProduceResponse(tuple(responses))
        delayed = DelayedProduce if acks == ACKS_ALL else FlushedProduce
        operation = delayed(due_ms, responses, pending)
        keys = [append.replica.topic_partition for append in pending.values()]
        self._replicas.purgatories.produces.try_complete_else_watch(operation, keys)
        return operation.response

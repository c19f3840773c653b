"""Appends to the logs that this broker leads, and when they are acknowledged: a client's produces and its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from node.purgatory.delayed_produce import DelayedProduce, PendingAppend, SyncedProduce, too_few_in_sync
from node.replication.replica import Appended as AppendInfo
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.runtime.deferred_response import DeferredResponse
from storage.log.batch_validation import ValidatedBatch, admit_own
from tidelog.errors import BrokerError, NotEnoughReplicasError, NotLeaderOrFollowerError
from tidelog.model import Buffer, TopicPartition
from tidelog.protocol.messages import ProducePartitionResponse, ProduceResponse, RecordError

ACKS_NONE = 0
ACKS_ALL = -1


class Appended(NamedTuple):
    """A batch is in the leader's log, and acknowledged in that epoch once `required_offset` is committed."""

    replica: Replica
    leader_epoch: int
    required_offset: int
    response: ProducePartitionResponse


Outcome = Appended | ProducePartitionResponse


def _outcome_of(appended: AppendInfo, replica: Replica) -> Appended:
    response = ProducePartitionResponse(
        *replica.topic_partition,
        0,
        appended.base_offset,
        appended.log_append_time_ms,
        replica.log.log_start_offset,
    )
    return Appended(replica, replica.partition.leader_epoch, appended.last_offset + 1, response)


class LeaderAppends:
    """What is appended here is in the log when this returns; its acknowledgement may come later."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def leader_or_raise(self, replica: Replica, acks: int) -> Replica:
        """The replica, where a batch may be appended to it now with these `acks`; a BrokerError says why not."""
        partition = replica.leader_or_raise().partition
        if acks == ACKS_ALL:
            if not partition.has_enough_in_sync:
                raise NotEnoughReplicasError(too_few_in_sync(partition))
        elif self._replicas.cut_off:
            raise NotLeaderOrFollowerError(
                f"broker {self._replicas.broker_id} may not lead {replica.topic_partition} any more"
            )
        return replica

    def append(self, replica: Replica, batch: ValidatedBatch) -> Appended:
        """One batch, to the log of a leader. StorageError."""
        replicas, partition, log, tp = self._replicas, replica.partition, replica.log, replica.topic_partition
        clock = replicas.clock
        began_ms = clock.monotonic_ms()
        appended = replica.append_as_leader(batch, clock.now_ms())
        now_ms = clock.monotonic_ms()
        replicas.loop_budget.charge(now_ms - began_ms)
        if not appended.duplicate:
            replicas.waiting.log_grew(tp)
            if replica.flushes:
                replica.flush_if_due()
            if partition.appended(log.log_end_offset, now_ms):
                replicas.high_watermark_rose(replica)
        return _outcome_of(appended, replica)

    def repeated(self, replica: Replica, batch: Buffer, refusal: BrokerError) -> Appended:
        """What was appended for a batch before the topic's settings refused it; raises the refusal if nothing was."""
        appended = replica.log.find_repeated(batch)
        if appended is None:
            raise refusal
        return _outcome_of(appended, replica)

    def refusal(self, tp: TopicPartition, error: BrokerError) -> ProducePartitionResponse:
        """The answer for a partition to which nothing was appended."""
        return ProducePartitionResponse(
            *tp,
            self._replicas.code_of(error, tp),
            error_message=str(error) or None,
            record_errors=tuple(RecordError(index, fault) for index, fault in error.record_errors.items()),
        )

    def append_own(self, tp: TopicPartition, batch: bytes, timeout_ms: int) -> ProduceResponse | DeferredResponse:
        """A batch of the broker's own making with acks=all; the answer is what a producer's would be."""
        try:
            replica = self.leader_or_raise(self._replicas.get_or_raise(tp), ACKS_ALL)
            outcome: Outcome = self.append(replica, admit_own(batch, replica.log.config))
        except BrokerError as error:
            outcome = self.refusal(tp, error)
        return self.acknowledge([outcome], ACKS_ALL, self._replicas.clock.monotonic_ms() + timeout_ms)

    def acknowledge(self, outcomes: Sequence[Outcome], acks: int, due_ms: int) -> ProduceResponse | DeferredResponse:
        """The answer, at once or when the ISR or the disk has had its turn, not after `due_ms`."""
        responses: list[ProducePartitionResponse] = []
        pending: list[PendingAppend] = []
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, ProducePartitionResponse):
                responses.append(outcome)
                continue
            replica, leader_epoch, required_offset, response = outcome
            responses.append(response)
            if acks == ACKS_ALL or replica.partition.flushed_offset is not None:
                pending.append(PendingAppend(index, replica, leader_epoch, required_offset))
        if not pending:
            return ProduceResponse(tuple(responses))
        delayed = DelayedProduce if acks == ACKS_ALL else SyncedProduce
        operation = delayed(due_ms, responses, pending)
        keys = [append.replica.topic_partition for append in pending]
        self._replicas.waiting.produces.try_complete_else_watch(operation, keys)
        return operation.response

"""Produce: append to the leader's log, wait for the ISR with acks=all, and for the disk where the topic asks for it."""

from __future__ import annotations

from node.delayed import DelayedProduce, PendingAppend
from node.later import LaterResponse
from node.replica import Replica
from node.replicas import Replicas
from node.server import RequestContext
from node.syncing import SyncedProduce
from tidelog.errors import (
    BrokerError,
    InvalidRequiredAcksError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
)
from tidelog.messages import ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse, Response
from tidelog.model import TopicPartition

ACKS_NONE = 0
ACKS_ALL = -1
_KNOWN_ACKS = (ACKS_ALL, ACKS_NONE, 1)


def produce(replicas: Replicas, request: ProduceRequest, context: RequestContext) -> Response | LaterResponse | None:
    """The answer, later where the ISR or the disk must confirm first, or None with acks=0."""
    acks = request.acks
    if acks not in _KNOWN_ACKS:
        code = InvalidRequiredAcksError.code
        return ProduceResponse(tuple(ProducePartitionResponse(p.topic, p.partition, code) for p in request.partitions))
    now_ms = replicas.clock.monotonic_ms()
    responses: list[ProducePartitionResponse] = []
    pending: list[PendingAppend] = []
    for index, part in enumerate(request.partitions):
        try:
            replica, required_offset, response = _append(replicas, part, acks, now_ms)
        except BrokerError as error:
            code = replicas.code_of(error, TopicPartition(part.topic, part.partition))
            message = str(error) or None
            responses.append(ProducePartitionResponse(part.topic, part.partition, code, error_message=message))
            continue
        responses.append(response)
        if acks == ACKS_ALL or replica.partition.durable_end is not None:
            pending.append(PendingAppend(index, replica, replica.partition.leader_epoch, required_offset))
    if acks == ACKS_NONE:
        return None
    if not pending:
        return ProduceResponse(tuple(responses))
    delayed = DelayedProduce if acks == ACKS_ALL else SyncedProduce
    operation = delayed(context.due_ms(now_ms, request.timeout_ms), responses, pending)
    keys = [append.replica.topic_partition for append in pending]
    replicas.waiting.produces.try_complete_else_watch(operation, keys)
    return operation.response


def _append(
    replicas: Replicas, part: ProducePartition, acks: int, now_ms: int
) -> tuple[Replica, int, ProducePartitionResponse]:
    tp = TopicPartition(part.topic, part.partition)
    replica = replicas.get_or_raise(tp).leader_or_raise()
    partition, log = replica.partition, replica.log
    if acks == ACKS_ALL:
        if not partition.has_enough_in_sync:
            raise NotEnoughReplicasError(f"{tp} has {partition.in_sync_count} in-sync replicas")
    elif replicas.isolated:
        raise NotLeaderOrFollowerError(f"broker {replicas.broker_id} is cut off and may not lead {tp} any more")
    appended = log.append_as_leader(part.records, partition.leader_epoch, replicas.clock.now_ms())
    if not appended.duplicate:
        replicas.waiting.log_grew(tp)
        if replica.flushes:
            replica.flush_if_due()
        if partition.appended(log.log_end_offset, now_ms):
            replicas.waiting.high_watermark_rose(tp)
    response = ProducePartitionResponse(
        part.topic, part.partition, 0, appended.base_offset, appended.log_append_time_ms, log.log_start_offset
    )
    return replica, appended.last_offset + 1, response

"""ListOffsets and OffsetForLeaderEpoch: where in a partition something stands. The leader alone knows.

The rules of the look-up are DESIGN 5 and the page on looking offsets up by time (KIP-79, KIP-207, KIP-734).
"""

from __future__ import annotations

from collections import Counter

from node.replica import Replica
from node.replicas import Replicas
from tidelog.errors import BrokerError, InvalidRequestError, OffsetNotAvailableError
from tidelog.messages import (
    EpochEndOffset,
    EpochPartition,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tidelog.model import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    TopicPartition,
)


def list_offsets(replicas: Replicas, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """One answer or one error for each partition; a partition that stands there twice is an error."""
    asked_often = Counter((part.topic, part.partition) for part in request.partitions)
    answers = []
    for part in request.partitions:
        try:
            if asked_often[part.topic, part.partition] > 1:
                raise InvalidRequestError(f"{part.topic}-{part.partition} stands in the request more than once")
            answers.append(_look_up(replicas, request.replica_id, part))
        except BrokerError as error:
            code = replicas.code_of(error, TopicPartition(part.topic, part.partition))
            answers.append(ListOffsetsPartitionResponse(part.topic, part.partition, code))
    return ListOffsetsResponse(tuple(answers))


def _look_up(replicas: Replicas, replica_id: int, part: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    replica = replicas.get_or_raise(TopicPartition(part.topic, part.partition))
    if replica_id == DEBUGGING_REPLICA_ID:
        replica.online_or_raise().check_epoch(part.current_leader_epoch)
    else:
        replica.leader_or_raise(part.current_leader_epoch)
    log, partition = replica.log, replica.partition
    for_consumer = replica_id == CONSUMER_REPLICA_ID
    bound = partition.high_watermark if for_consumer else log.log_end_offset
    if part.timestamp == EARLIEST_TIMESTAMP:
        return ListOffsetsPartitionResponse(part.topic, part.partition, 0, NO_TIMESTAMP, log.log_start_offset)
    # Where the committed end is not known, "nothing there" and "this is the last" would be guesses (KIP-207).
    may_say_end = not for_consumer or (partition.knows_committed_end and not replicas.isolated)
    if not may_say_end and part.timestamp in (LATEST_TIMESTAMP, MAX_TIMESTAMP):
        raise OffsetNotAvailableError(f"{replica.topic_partition}: the leader does not know the committed end yet")
    if part.timestamp == LATEST_TIMESTAMP:
        return ListOffsetsPartitionResponse(
            part.topic, part.partition, 0, NO_TIMESTAMP, bound, _epoch_or_none(log.latest_epoch)
        )
    if part.timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp(bound)
    elif part.timestamp < 0:
        raise InvalidRequestError(f"{part.timestamp} is no timestamp")
    else:
        found = log.offset_for_timestamp(part.timestamp, bound)
    if found is not None:
        return ListOffsetsPartitionResponse(
            part.topic, part.partition, 0, found.timestamp, found.offset, _epoch_or_none(found.leader_epoch)
        )
    if not may_say_end:
        raise OffsetNotAvailableError(f"{replica.topic_partition}: the leader does not know the committed end yet")
    return ListOffsetsPartitionResponse(part.topic, part.partition, 0)


def offset_for_leader_epoch(replicas: Replicas, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """Where epochs end in this leader's log."""
    return OffsetForLeaderEpochResponse(tuple(_end_of_epoch(replicas, part) for part in request.partitions))


def _end_of_epoch(replicas: Replicas, part: EpochPartition) -> EpochEndOffset:
    try:
        replica: Replica = replicas.get_or_raise(TopicPartition(part.topic, part.partition))
        replica.leader_or_raise(part.current_leader_epoch)
        found = replica.log.end_offset_for_epoch(part.leader_epoch)
    except BrokerError as error:
        return EpochEndOffset(part.topic, part.partition, error.code)
    if found is None:
        return EpochEndOffset(part.topic, part.partition, 0)
    leader_epoch, end_offset = found
    return EpochEndOffset(part.topic, part.partition, 0, leader_epoch, end_offset)


def _epoch_or_none(epoch: int | None) -> int:
    return -1 if epoch is None else epoch

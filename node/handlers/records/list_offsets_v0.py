"""ListOffsets of version 0: look up segment offsets by the time of the segment's last write."""

from __future__ import annotations

from collections import Counter

from node.handlers.records.read_bounds import find_read_bounds
from node.replication.replica_manager import ReplicaManager
from storage.log.timestamp_lookup import offsets_up_to
from tidelog.errors import BrokerError, InvalidRequestError
from tidelog.model import EARLIEST_TIMESTAMP, TopicPartition
from tidelog.protocol.list_offsets_v0_messages import (
    ListSegmentOffsetsRequest,
    ListSegmentOffsetsResponse,
    SegmentOffsets,
    SegmentOffsetsPartition,
)


def list_segment_offsets(replicas: ReplicaManager, request: ListSegmentOffsetsRequest) -> ListSegmentOffsetsResponse:
    """Return one answer or one error for each partition. A partition that occurs twice gets an error.

    An answer has at most `max_num_offsets` offsets in falling order, and none above the sender's bound.
    """
    counts = Counter((part.topic, part.partition) for part in request.partitions)
    answers = []
    for part in request.partitions:
        tp = TopicPartition(part.topic, part.partition)
        try:
            if counts[tp] > 1:
                raise InvalidRequestError(f"the request names {tp} twice")
            answers.append(SegmentOffsets(*tp, 0, tuple(_offsets(replicas, request.replica_id, part))))
        except BrokerError as error:
            answers.append(SegmentOffsets(*tp, replicas.code_of(error, tp)))
    return ListSegmentOffsetsResponse(tuple(answers))


def _offsets(replicas: ReplicaManager, replica_id: int, part: SegmentOffsetsPartition) -> list[int]:
    tp = TopicPartition(part.topic, part.partition)
    if part.timestamp < EARLIEST_TIMESTAMP or part.max_num_offsets < 0:
        raise InvalidRequestError(
            f"{tp}: timestamp {part.timestamp} must be at least {EARLIEST_TIMESTAMP}, "
            f"max_num_offsets {part.max_num_offsets} at least 0"
        )
    bounds = find_read_bounds(replicas, replica_id, tp, part.current_leader_epoch)
    now_ms = replicas.clock.now_ms()
    offsets = bounds.replica.log.segment_offsets(part.timestamp, part.max_num_offsets, now_ms)
    if offsets and offsets[0] > bounds.upper_bound:
        bounds.require_known_end()  # because the answer would be the bound itself
    return offsets_up_to(offsets, bounds.upper_bound)

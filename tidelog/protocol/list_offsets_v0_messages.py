"""Define ListOffsets version 0 of Kafka, before records had timestamps, under a number of Tidelog's own.

The form is that of `tidelog.protocol.messages`. The look-up uses the modification times of segment files, so that its
resolution is a segment.
"""

from __future__ import annotations

from tidelog.frozen_dataclass import frozen
from tidelog.model import CONSUMER_REPLICA_ID
from tidelog.protocol.messages import ApiKey, Message, Request, Response


@frozen
class SegmentOffsetsPartition(Message):
    """One partition to look up; `timestamp` in ms, or −1 latest, −2 earliest."""

    topic: str
    partition: int
    timestamp: int
    max_num_offsets: int = 1
    current_leader_epoch: int = -1


@frozen
class SegmentOffsets(Message):
    """The first offsets of segments, the newest first; empty if all segments are later than the target."""

    topic: str
    partition: int
    error_code: int
    offsets: tuple[int, ...] = ()


@frozen
class ListSegmentOffsetsResponse(Response):
    """The answer, with one entry for each partition of the request, in order."""

    partitions: tuple[SegmentOffsets, ...]


@frozen
class ListSegmentOffsetsRequest(Request):
    """Looks up offsets by the last write of segments; the same brokers answer as for `ListOffsetsRequest`."""

    partitions: tuple[SegmentOffsetsPartition, ...]
    replica_id: int = CONSUMER_REPLICA_ID

    api = ApiKey.LIST_SEGMENT_OFFSETS
    response = ListSegmentOffsetsResponse


#: Every request of this module.
SEGMENT_REQUESTS: tuple[type[Request], ...] = (ListSegmentOffsetsRequest,)

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
    """One partition to look up; `timestamp` in ms, or −1 for the end of the log, −2 for its start.

    max_num_offsets        the answer has at most this many offsets
    current_leader_epoch   the leader epoch that the sender knows; −1: no check
    """

    topic: str
    partition: int
    timestamp: int
    max_num_offsets: int = 1
    current_leader_epoch: int = -1


@frozen
class SegmentOffsets(Message):
    """The offsets of one partition, in descending order.

    For a time: the base offset of the newest segment that was last written at or before the time, and those of all
    earlier segments; empty if there is none. The log end counts as a segment that is written now. No offset is beyond
    the high watermark for a consumer, or beyond the log end for other senders.
    """

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
    """Looks up offsets by the last write of segments; the leader answers, or any replica if `replica_id` is −2."""

    partitions: tuple[SegmentOffsetsPartition, ...]
    replica_id: int = CONSUMER_REPLICA_ID

    api = ApiKey.LIST_SEGMENT_OFFSETS
    response = ListSegmentOffsetsResponse


#: Every request of this module.
SEGMENT_REQUESTS: tuple[type[Request], ...] = (ListSegmentOffsetsRequest,)

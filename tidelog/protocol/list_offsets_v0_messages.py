"""ListOffsets as it was before records had timestamps (Kafka's version 0), under a number of our own.

Messages as in `tidelog.protocol.messages`. A file here is a segment of a partition's log, and its time is when it was
last written, so that an answer is as coarse as segments are large.
"""

from __future__ import annotations

from tidelog.frozen_dataclass import frozen
from tidelog.model import CONSUMER_REPLICA_ID
from tidelog.protocol.messages import ApiKey, Message, Request, Response


@frozen
class SegmentOffsetsPartition(Message):
    """`timestamp` in ms, or −1 latest, −2 earliest."""

    topic: str
    partition: int
    timestamp: int
    max_num_offsets: int = 1
    current_leader_epoch: int = -1


@frozen
class SegmentOffsets(Message):
    """Where segments begin, the newest first; empty where the target is before them all."""

    topic: str
    partition: int
    error_code: int
    offsets: tuple[int, ...] = ()


@frozen
class ListSegmentOffsetsResponse(Response):
    """One entry for each partition of the request, in its order."""

    partitions: tuple[SegmentOffsets, ...]


@frozen
class ListSegmentOffsetsRequest(Request):
    """Offsets by when segments were last written; who answers whom as in `ListOffsetsRequest`."""

    partitions: tuple[SegmentOffsetsPartition, ...]
    replica_id: int = CONSUMER_REPLICA_ID

    api = ApiKey.LIST_SEGMENT_OFFSETS
    response = ListSegmentOffsetsResponse


#: Every request in here.
SEGMENT_REQUESTS: tuple[type[Request], ...] = (ListSegmentOffsetsRequest,)

"""Look up offsets by the modification times of segments: `getOffsetsBefore` of Kafka's old consumers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index

from tidelog import arguments
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.leader_requests import Asked, PerLeaderRequest
from tidelog.errors import BrokerError, error_for
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.protocol.list_offsets_v0_messages import (
    ListSegmentOffsetsRequest,
    ListSegmentOffsetsResponse,
    SegmentOffsets,
    SegmentOffsetsPartition,
)
from tidelog.protocol.messages import Response
from tidelog.timestamps import Timestamp, to_timestamp_ms, warn_of_seconds


async def offsets_before(
    client: ClusterClient, times: Mapping[TopicPartition, Timestamp], max_num_offsets: int, timeout_ms: int
) -> dict[TopicPartition, list[int]]:
    """Return the base offsets of each partition's segments last written at or before the time, newest first.

    The result begins with the newest segment that is old enough and goes on with all earlier ones, up to
    `max_num_offsets` offsets. The log end counts as a segment that is written now. The list is empty if all segments
    were written later. Raises ValueError or TypeError for an invalid time (−1 is the latest offset, −2 the earliest) or
    number, and the first error that is not retriable. TimeoutError says how long the call took and which partitions are
    missing.
    """
    most = arguments.whole("max_num_offsets", max_num_offsets, 0, arguments.INT32_MAX)
    targets = {tp: _target(tp, time) for tp, time in arguments.by_partition("times", times).items()}
    for timestamp_ms, tp in {timestamp_ms: tp for tp, timestamp_ms in reversed(targets.items())}.items():
        warn_of_seconds(f"times[{tp}]", timestamp_ms)

    def make(asked: Asked[int]) -> ListSegmentOffsetsRequest:
        return ListSegmentOffsetsRequest(
            tuple(SegmentOffsetsPartition(*tp, timestamp, most, leader.epoch) for tp, timestamp, leader in asked)
        )

    question: PerLeaderRequest[int, SegmentOffsets] = PerLeaderRequest("list offsets by segments", make, _read)
    answers = await question.ask(client, targets, timeout_ms)
    return {tp: list(answers[tp].offsets) for tp in targets}


def _target(tp: TopicPartition, time: Timestamp) -> int:
    if not isinstance(time, bool) and time in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
        return index(time)  # type: ignore[arg-type]
    return to_timestamp_ms(time, f"times[{tp}]")


def _read(response: Response) -> Iterable[tuple[TopicPartition, BrokerError | None, SegmentOffsets]]:
    assert isinstance(response, ListSegmentOffsetsResponse)
    for each in response.partitions:
        yield TopicPartition(each.topic, each.partition), error_for(each.error_code), each

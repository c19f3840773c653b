"""Offsets by the times at which segments were last written: what the old consumers' `getOffsetsBefore` asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index

from tidelog.client import ClusterClient
from tidelog.errors import BrokerError, error_for
from tidelog.leader_calls import Asked, LeaderQuestion
from tidelog.messages import Response
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition, as_partition
from tidelog.segment_messages import (
    ListSegmentOffsetsRequest,
    ListSegmentOffsetsResponse,
    SegmentOffsets,
    SegmentOffsetsPartition,
)
from tidelog.timestamps import Timestamp, to_timestamp_ms, warn_of_seconds

_MOST_OFFSETS = (1 << 31) - 1


async def offsets_before(
    client: ClusterClient, times: Mapping[TopicPartition, Timestamp], max_num_offsets: int, timeout_ms: int
) -> dict[TopicPartition, list[int]]:
    """For each partition where its segments begin that were last written at or before the time, and those before them.

    ValueError or TypeError for what is no time (−1 is the latest, −2 the earliest) and no number; a final refusal is
    raised at once; TimeoutError says how long it took and which partitions are missing.
    """
    most = index(max_num_offsets)
    if not 0 <= most <= _MOST_OFFSETS:
        raise ValueError(f"max_num_offsets must be between 0 and {_MOST_OFFSETS}, not {most}")
    if not isinstance(times, Mapping):
        raise TypeError(f"times must be a mapping of partitions to times, not {times!r}")
    targets = {(tp := as_partition(key)): _target(tp, time) for key, time in times.items()}
    for timestamp_ms, tp in {timestamp_ms: tp for tp, timestamp_ms in reversed(targets.items())}.items():
        warn_of_seconds(f"the time for {tp}", timestamp_ms)

    def make(asked: Asked[int]) -> ListSegmentOffsetsRequest:
        return ListSegmentOffsetsRequest(
            tuple(SegmentOffsetsPartition(*tp, timestamp, most, leader.epoch) for tp, timestamp, leader in asked)
        )

    question: LeaderQuestion[int, SegmentOffsets] = LeaderQuestion("list offsets by segments", make, _read)
    answers = await question.ask(client, targets, timeout_ms)
    return {tp: list(answers[tp].offsets) for tp in targets}


def _target(tp: TopicPartition, time: Timestamp) -> int:
    if not isinstance(time, bool) and time in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
        return index(time)  # type: ignore[arg-type]
    return to_timestamp_ms(time, f"the time for {tp}")


def _read(response: Response) -> Iterable[tuple[TopicPartition, BrokerError | None, SegmentOffsets]]:
    assert isinstance(response, ListSegmentOffsetsResponse)
    for each in response.partitions:
        yield TopicPartition(each.topic, each.partition), error_for(each.error_code), each

"""Offsets by time, and the two ends of a partition: asked of the leaders, as TIMESTAMPS promises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.client import ClusterClient
from tidelog.errors import BrokerError, InvalidRecordError, error_for
from tidelog.leader_calls import Asked, LeaderQuestion
from tidelog.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    Response,
)
from tidelog.model import READ_UNCOMMITTED, OffsetAndTimestamp, TopicPartition
from tidelog.timestamps import Timestamp, to_timestamp_ms


def list_offsets(isolation_level: int = READ_UNCOMMITTED) -> LeaderQuestion[int, ListOffsetsPartitionResponse]:
    """The question whose subject is a timestamp (or −1 latest, −2 earliest, −3 the largest timestamp)."""

    def make(asked: Asked[int]) -> ListOffsetsRequest:
        partitions = tuple(ListOffsetsPartition(*tp, timestamp, leader.epoch) for tp, timestamp, leader in asked)
        return ListOffsetsRequest(partitions, isolation_level=isolation_level)

    return LeaderQuestion("list offsets", make, _read)


async def offsets_for_times(
    client: ClusterClient, times: Mapping[TopicPartition, Timestamp], timeout_ms: int, isolation_level: int
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """For each partition the earliest offset whose timestamp is at or after the target, None where there is none.

    ValueError for a negative time or a naive datetime, naming the partition; a final refusal is raised at once;
    TimeoutError says how long it took and which partitions are missing.
    """
    targets = {
        TopicPartition(*tp): to_timestamp_ms(time, f"the time for {TopicPartition(*tp)}") for tp, time in times.items()
    }
    answers = await list_offsets(isolation_level).ask(client, targets, timeout_ms)
    return {tp: _found(answers[tp]) for tp in targets}


async def end_of_each(
    client: ClusterClient, partitions: Iterable[TopicPartition], which: int, timeout_ms: int, isolation_level: int
) -> dict[TopicPartition, int]:
    """The first (`which` = EARLIEST_TIMESTAMP) or next (LATEST_TIMESTAMP) offset of each partition."""
    targets = {TopicPartition(*tp): which for tp in partitions}
    answers = await list_offsets(isolation_level).ask(client, targets, timeout_ms)
    return {tp: answers[tp].offset for tp in targets}


def _read(response: Response) -> Iterable[tuple[TopicPartition, BrokerError | None, ListOffsetsPartitionResponse]]:
    assert isinstance(response, ListOffsetsResponse)
    for each in response.partitions:
        yield TopicPartition(each.topic, each.partition), _error_of(each), each


def _error_of(answer: ListOffsetsPartitionResponse) -> BrokerError | None:
    if answer.error_code != InvalidRecordError.code:
        return error_for(answer.error_code)
    return InvalidRecordError(
        f"the records of the batch at offset {answer.offset} cannot be read; the log of the partition's leader says why"
    )


def _found(answer: ListOffsetsPartitionResponse) -> OffsetAndTimestamp | None:
    if answer.offset < 0:
        return None
    epoch = answer.leader_epoch if answer.leader_epoch >= 0 else None
    return OffsetAndTimestamp(answer.offset, answer.timestamp, epoch)

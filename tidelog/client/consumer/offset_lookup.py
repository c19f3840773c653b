"""Look up offsets by time, and the two ends of partitions, by ListOffsets requests to their leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidelog import arguments
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.leader_requests import Asked, PerLeaderRequest
from tidelog.errors import BrokerError, InvalidRecordError, TidelogError, error_for
from tidelog.model import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_UNCOMMITTED,
    NoOffset,
    OffsetAndTimestamp,
    OffsetOutcome,
    TopicPartition,
)
from tidelog.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    Response,
)
from tidelog.timestamps import LARGEST_TIMESTAMP_MS, Timestamp, looks_like_seconds, to_target_ms, warn_of_seconds

#: The target of a look-up that finds the first record with a timestamp.
ANY_TIME_MS = 0
#: Timeout of the look-ups that only find out why there is no offset.
_REASON_TIME_LIMIT_MS = 2_000


@dataclass(frozen=True, slots=True)
class Ends:
    """The readable offsets of a partition: from `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int


def list_offsets(
    isolation_level: int = READ_UNCOMMITTED, replica_id: int = CONSUMER_REPLICA_ID
) -> PerLeaderRequest[int, ListOffsetsPartitionResponse]:
    """Return the ListOffsets request, whose subject is a timestamp (ms), −1 (end), −2 (start) or −3 (largest time).

    An answer's offset is −1 if no record has the timestamp or a later one.
    """

    def make(asked: Asked[int]) -> ListOffsetsRequest:
        partitions = tuple(ListOffsetsPartition(*tp, timestamp, leader.epoch) for tp, timestamp, leader in asked)
        return ListOffsetsRequest(partitions, replica_id, isolation_level)

    return PerLeaderRequest("list offsets", make, _read)


def to_targets(times: Mapping[TopicPartition, Timestamp]) -> dict[TopicPartition, int]:
    """Return the targets in milliseconds since 1970, by partition.

    ValueError and TypeError name the partition or the invalid key. A datetime is rounded up. One
    SecondsForMillisecondsWarning is issued per distinct time that looks like seconds.
    """
    targets: dict[TopicPartition, int] = {}
    in_seconds: dict[int, TopicPartition] = {}
    for key, time in arguments.mapping("times", times, "partitions").items():
        tp = arguments.partition("times: a key", key)
        if type(time) is int and 0 <= time <= LARGEST_TIMESTAMP_MS:
            timestamp_ms = time  # the common case, which avoids the cost of the text for an error
        else:
            timestamp_ms = to_target_ms(time, f"times[{tp}]")
        targets[tp] = timestamp_ms
        if looks_like_seconds(timestamp_ms):
            in_seconds.setdefault(timestamp_ms, tp)
    for timestamp_ms, tp in in_seconds.items():
        warn_of_seconds(f"times[{tp}]", timestamp_ms)
    return targets


async def offsets_for_times(
    client: ClusterClient, times: Mapping[TopicPartition, Timestamp], timeout_ms: int, isolation_level: int
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return each partition's earliest offset whose timestamp is at or after the target; None if there is none.

    Raises the errors of `to_targets`, and the first error that is not retriable, with the others in `others`.
    TimeoutError says how long the call took and which partitions are missing.
    """
    targets = to_targets(times)
    answers = await list_offsets(isolation_level).ask(client, targets, timeout_ms)
    return {tp: _found(answers[tp]) for tp in targets}


async def outcomes_for_times(
    client: ClusterClient, times: Mapping[TopicPartition, Timestamp], timeout_ms: int, isolation_level: int
) -> dict[TopicPartition, OffsetOutcome]:
    """Return the result of `offsets_for_times` for each partition, with the reason if there is no offset.

    The error of one partition does not affect the others. Raises the errors of `to_targets`, and NoBrokersError if no
    broker was ever reached.
    """
    targets = to_targets(times)
    lookups = await list_offsets(isolation_level).try_ask(client, targets, timeout_ms)
    outcomes = {tp: OffsetOutcome(None, NoOffset.REFUSED, error) for tp, error in lookups.refused.items()}
    outcomes |= {tp: OffsetOutcome(None, NoOffset.RETRY, error) for tp, error in lookups.errors.items()}
    outcomes |= {tp: OffsetOutcome(_found(answer)) for tp, answer in lookups.answers.items() if answer.offset >= 0}
    not_found = {tp: target for tp, target in targets.items() if tp not in outcomes}
    outcomes |= await _reasons(client, not_found, isolation_level)
    return {tp: outcomes[tp] for tp in targets}


async def end_of_each(
    client: ClusterClient, partitions: Iterable[TopicPartition], which: int, timeout_ms: int, isolation_level: int
) -> dict[TopicPartition, int]:
    """Return each partition's log start offset (`which` = EARLIEST_TIMESTAMP) or its end (LATEST_TIMESTAMP).

    The end is the high watermark, or with READ_COMMITTED the last stable offset. Raises the errors of
    `PerLeaderRequest.ask`.
    """
    targets = dict.fromkeys(partitions, which)
    answers = await list_offsets(isolation_level).ask(client, targets, timeout_ms)
    return {tp: answers[tp].offset for tp in targets}


async def find_ends(
    client: ClusterClient,
    partitions: Collection[TopicPartition],
    timeout_ms: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> tuple[dict[TopicPartition, Ends], dict[TopicPartition, TidelogError]]:
    """Return the readable offsets of each partition, and the errors of the other partitions.

    A partition has an error if its leader refuses or does not answer one of the two requests within `timeout_ms`.
    """
    question = list_offsets(isolation_level)
    earliest, latest = await asyncio.gather(
        question.try_ask(client, dict.fromkeys(partitions, EARLIEST_TIMESTAMP), timeout_ms),
        question.try_ask(client, dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout_ms),
    )
    ends = {
        tp: Ends(start.offset, max(start.offset, latest.answers[tp].offset))
        for tp, start in earliest.answers.items()
        if tp in latest.answers
    }
    return ends, earliest.unanswered | latest.unanswered


async def _reasons(
    client: ClusterClient, not_found: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, OffsetOutcome]:
    """Return why the leaders found no record at these times, by look-ups that also cover uncommitted records.

    A partition whose look-ups fail within 2 s has the reason RETRY, whatever the error.
    """
    uncommitted, (ends, silent) = await asyncio.gather(
        list_offsets(replica_id=DEBUGGING_REPLICA_ID).try_ask(client, not_found, _REASON_TIME_LIMIT_MS),
        find_ends(client, not_found, _REASON_TIME_LIMIT_MS, isolation_level),
    )
    silent |= uncommitted.unanswered
    outcomes: dict[TopicPartition, OffsetOutcome] = {}
    for tp in not_found:
        if tp in silent:
            outcomes[tp] = OffsetOutcome(None, NoOffset.RETRY, silent[tp])
        elif uncommitted.answers[tp].offset >= 0:
            outcomes[tp] = OffsetOutcome(None, NoOffset.ABOVE_HIGH_WATERMARK)
        elif ends[tp].start < ends[tp].end:
            outcomes[tp] = OffsetOutcome(None, NoOffset.PAST_END)
        else:
            outcomes[tp] = OffsetOutcome(None, NoOffset.EMPTY)
    return outcomes


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

"""Where a reader begins that wants what has a certain time or a later one: somewhere in every partition.

No record at or after the target is skipped, however much is written meanwhile. The end is asked for first: what the
look-up does not find was not there before that end, and what comes after it is read. So a reader that begins at an end
may be given records that were written during the look-up and are older than the target; nothing else is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.offset_lookup import ANY_TIME_MS, list_offsets
from tidelog.client.leader_requests import Outcomes
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.protocol.messages import ListOffsetsPartitionResponse


class StartReason(StrEnum):
    """Why a reader begins where it does."""

    FOUND = "found"
    """With the first record that has the target's time or a later one; there are older ones before it."""
    BEFORE_LOG_START = "before_log_start"
    """With the first record that there is: it is younger than the target, and nothing is before it."""
    PAST_END = "past_end"
    """At the end: every record is older than the target."""
    EMPTY = "empty"
    """At the end: there is no record."""


class OlderRecords(StrEnum):
    """What became of the records before a partition's first."""

    GONE = "gone"
    """Retention, deletion or compaction took them."""
    NEVER_WRITTEN = "never_written"
    """There were none."""


class StartingPoint(NamedTuple):
    """Where a reader of one partition begins.

    timestamp, leader_epoch   of the record at `offset` (ms); at an end there is none, and the epoch is that before it
    older                     for `before_log_start` and `empty`
    """

    offset: int
    reason: StartReason
    timestamp: int | None = None
    leader_epoch: int | None = None
    older: OlderRecords | None = None


@dataclass(frozen=True, slots=True)
class _Told:
    """A leader's answers about one partition; offset −1: no such record.

    end      asked for before the others: where the next visible record will stand
    found    the first record at or after the target
    oldest   the first record that has a timestamp
    start    the first offset
    """

    end: ListOffsetsPartitionResponse
    found: ListOffsetsPartitionResponse
    oldest: ListOffsetsPartitionResponse
    start: ListOffsetsPartitionResponse


async def starting_points(
    client: ClusterClient, targets: Mapping[TopicPartition, int], timeout_ms: int, isolation_level: int
) -> dict[TopicPartition, StartingPoint]:
    """For each partition and time (ms). A final refusal is raised; TimeoutError names who did not answer in time."""
    deadline_ms = client.clock.monotonic_ms() + timeout_ms
    question = list_offsets(isolation_level)
    ends = await question.ask(client, dict.fromkeys(targets, LATEST_TIMESTAMP), timeout_ms)
    left_ms = max(1, deadline_ms - client.clock.monotonic_ms())
    told = await asyncio.gather(*(question.ask(client, each, left_ms) for each in _subjects(targets)))
    return {tp: _starting_point(targets[tp], _Told(ends[tp], *(each[tp] for each in told))) for tp in targets}


async def try_starting_points(
    client: ClusterClient, targets: Mapping[TopicPartition, int], timeout_ms: int, isolation_level: int
) -> Outcomes[StartingPoint]:
    """Whatever is known when all is settled, or `timeout_ms` after each of the two questions."""
    question = list_offsets(isolation_level)
    ends = await question.try_ask(client, dict.fromkeys(targets, LATEST_TIMESTAMP), timeout_ms)
    asked = {tp: targets[tp] for tp in ends.answers}
    told = await asyncio.gather(*(question.try_ask(client, each, timeout_ms) for each in _subjects(asked)))
    points: Outcomes[StartingPoint] = Outcomes()
    for each in (ends, *told):
        points.errors |= each.errors
        points.refused |= each.refused
    for tp, target in asked.items():
        if tp not in points.refused and tp not in points.errors:
            answers = _Told(ends.answers[tp], *(each.answers[tp] for each in told))
            points.answers[tp] = _starting_point(target, answers)
    return points


def _subjects(targets: Mapping[TopicPartition, int]) -> tuple[Mapping[TopicPartition, int], ...]:
    """What is asked for once the ends are known, in the order of `_Told`."""
    return targets, dict.fromkeys(targets, ANY_TIME_MS), dict.fromkeys(targets, EARLIEST_TIMESTAMP)


def _starting_point(target_ms: int, told: _Told) -> StartingPoint:
    if told.found.offset < 0:
        # The log may have been cut at its start since the end was asked for.
        offset, epoch = max(told.end.offset, told.start.offset), _epoch_of(told.end)
        if told.start.offset < offset:
            return StartingPoint(offset, StartReason.PAST_END, None, epoch)
        return StartingPoint(offset, StartReason.EMPTY, None, epoch, _older_than(offset))
    offset, timestamp, epoch = told.found.offset, told.found.timestamp, _epoch_of(told.found)
    # Not "equal": between the two questions the log may have lost its first records, or all of them.
    if timestamp > target_ms and (told.oldest.offset < 0 or offset <= told.oldest.offset):
        return StartingPoint(offset, StartReason.BEFORE_LOG_START, timestamp, epoch, _older_than(offset))
    return StartingPoint(offset, StartReason.FOUND, timestamp, epoch)


def _epoch_of(answer: ListOffsetsPartitionResponse) -> int | None:
    return answer.leader_epoch if answer.leader_epoch >= 0 else None


def _older_than(offset: int) -> OlderRecords:
    """Offsets begin at 0 and none is left out: what has no record any more had one."""
    return OlderRecords.GONE if offset > 0 else OlderRecords.NEVER_WRITTEN

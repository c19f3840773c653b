"""Find where a reader of each partition must start to get all records with a certain time or a later one.

No record at or after the target is skipped, even if records are written during the look-up. The end offset is requested
first. A record that the look-up does not find was not there before that end, and records after the end are read. A
reader that starts at an end may get records that were written during the look-up and are older than the target.
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
    """The reason why a reader starts at its offset."""

    FOUND = "found"
    """At the first record with the target's time or a later one; older records precede it."""
    BEFORE_LOG_START = "before_log_start"
    """At the partition's first record, whose timestamp is later than the target; the log has no earlier record."""
    PAST_END = "past_end"
    """At the end, because every record is older than the target."""
    EMPTY = "empty"
    """At the end, because there is no record."""


class OlderRecords(StrEnum):
    """The reason why no record precedes a partition's first record."""

    GONE = "gone"
    """Retention, deletion or compaction removed them."""
    NEVER_WRITTEN = "never_written"
    """There never were any."""


class StartingPoint(NamedTuple):
    """The start of a reader of one partition.

    timestamp, leader_epoch   of the record at `offset` (ms); at an end the timestamp is None, and the epoch is the one
                              that the leader reports with the end; None: not known
    older                     why no record precedes; set for `before_log_start` and `empty`, else None
    """

    offset: int
    reason: StartReason
    timestamp: int | None = None
    leader_epoch: int | None = None
    older: OlderRecords | None = None


@dataclass(frozen=True, slots=True)
class _Answers:
    """A leader's answers about one partition; offset −1: no such record.

    end      the offset that the next visible record will get, requested before the others
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
    """Return each partition's start for its time (ms); nothing is returned unless all leaders answer.

    Raises the first final error, with the others in `others`. TimeoutError names the partitions without an answer.
    """
    deadline_ms = client.clock.monotonic_ms() + timeout_ms
    question = list_offsets(isolation_level)
    ends = await question.ask(client, dict.fromkeys(targets, LATEST_TIMESTAMP), timeout_ms)
    left_ms = max(1, deadline_ms - client.clock.monotonic_ms())
    answers = await asyncio.gather(*(question.ask(client, each, left_ms) for each in _subjects(targets)))
    return {tp: _starting_point(targets[tp], _Answers(ends[tp], *(each[tp] for each in answers))) for tp in targets}


async def try_starting_points(
    client: ClusterClient, targets: Mapping[TopicPartition, int], timeout_ms: int, isolation_level: int
) -> Outcomes[StartingPoint]:
    """Return all starts and errors that are known when all leaders have answered, or at the timeouts.

    `timeout_ms` applies to each of the two rounds of requests. NoBrokersError is raised if no broker was ever reached.
    """
    question = list_offsets(isolation_level)
    ends = await question.try_ask(client, dict.fromkeys(targets, LATEST_TIMESTAMP), timeout_ms)
    asked = {tp: targets[tp] for tp in ends.answers}
    outcomes = await asyncio.gather(*(question.try_ask(client, each, timeout_ms) for each in _subjects(asked)))
    points: Outcomes[StartingPoint] = Outcomes()
    for each in (ends, *outcomes):
        points.errors |= each.errors
        points.refused |= each.refused
    for tp, target in asked.items():
        if tp not in points.refused and tp not in points.errors:
            answers = _Answers(ends.answers[tp], *(each.answers[tp] for each in outcomes))
            points.answers[tp] = _starting_point(target, answers)
    return points


def _subjects(targets: Mapping[TopicPartition, int]) -> tuple[Mapping[TopicPartition, int], ...]:
    """Return the targets of the three look-ups that follow the look-up of the ends, in the order of `_Answers`."""
    return targets, dict.fromkeys(targets, ANY_TIME_MS), dict.fromkeys(targets, EARLIEST_TIMESTAMP)


def _starting_point(target_ms: int, answers: _Answers) -> StartingPoint:
    if answers.found.offset < 0:
        # The log start offset may have passed the end that was requested before.
        offset, epoch = max(answers.end.offset, answers.start.offset), _epoch_of(answers.end)
        if answers.start.offset < offset:
            return StartingPoint(offset, StartReason.PAST_END, None, epoch)
        return StartingPoint(offset, StartReason.EMPTY, None, epoch, _older_than(offset))
    offset, timestamp, epoch = answers.found.offset, answers.found.timestamp, _epoch_of(answers.found)
    # Not "equal", because between the two requests the log may have lost its first records, or all of them.
    if timestamp > target_ms and (answers.oldest.offset < 0 or offset <= answers.oldest.offset):
        return StartingPoint(offset, StartReason.BEFORE_LOG_START, timestamp, epoch, _older_than(offset))
    return StartingPoint(offset, StartReason.FOUND, timestamp, epoch)


def _epoch_of(answer: ListOffsetsPartitionResponse) -> int | None:
    return answer.leader_epoch if answer.leader_epoch >= 0 else None


def _older_than(offset: int) -> OlderRecords:
    """Return what happened to the records below the offset; offsets start at 0 and have no gaps when written."""
    return OlderRecords.GONE if offset > 0 else OlderRecords.NEVER_WRITTEN

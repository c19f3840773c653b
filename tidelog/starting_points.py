"""Where a reader begins that wants what has a certain time or a later one: somewhere in every partition.

No record at or after the target is skipped, however much is written meanwhile. The end is asked for first: what the
look-up does not find was not there before that end, and what comes after it is read. So a reader that begins at an end
may be given records that were written during the look-up and are older than the target; nothing else is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from tidelog.client import ClusterClient
from tidelog.errors import TimeoutError, raise_first
from tidelog.leader_calls import Outcomes, summary
from tidelog.messages import ListOffsetsPartitionResponse
from tidelog.model import LATEST_TIMESTAMP, OffsetAndTimestamp, TopicPartition
from tidelog.offsets import ANY_TIME_MS, found_in, list_offsets


class Start(StrEnum):
    """Why a reader begins where it does."""

    FOUND = "found"
    """With the first record that has the target's time or a later one; there are older ones before it."""
    BEFORE_LOG_START = "before_log_start"
    """With the first record that there is: it is younger than the target, and nothing is before it."""
    PAST_END = "past_end"
    """At the end: every record is older than the target."""
    EMPTY = "empty"
    """At the end: there is no record."""


class Older(StrEnum):
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
    reason: Start
    timestamp: int | None = None
    leader_epoch: int | None = None
    older: Older | None = None


async def starting_points(
    client: ClusterClient, targets: Mapping[TopicPartition, int], timeout_ms: int, isolation_level: int
) -> dict[TopicPartition, StartingPoint]:
    """For each partition and time (ms). A final refusal is raised; TimeoutError names who did not answer in time."""
    started_ms = client.clock.monotonic_ms()
    outcomes = await try_starting_points(client, targets, timeout_ms, isolation_level)
    raise_first(outcomes.refused.values())
    if outcomes.errors:
        waited_ms = client.clock.monotonic_ms() - started_ms
        raise TimeoutError(f"starting points: no answer in {waited_ms} ms for {summary(outcomes.errors)}")
    return {tp: outcomes.answers[tp] for tp in targets}


async def try_starting_points(
    client: ClusterClient, targets: Mapping[TopicPartition, int], timeout_ms: int, isolation_level: int
) -> Outcomes[StartingPoint]:
    """Whatever is known when all is settled or the time is up."""
    deadline_ms = client.clock.monotonic_ms() + timeout_ms
    question = list_offsets(isolation_level)
    ends = await question.try_ask(client, dict.fromkeys(targets, LATEST_TIMESTAMP), timeout_ms)
    left_ms = max(1, deadline_ms - client.clock.monotonic_ms())
    asked = {tp: targets[tp] for tp in ends.answers}
    found, oldest = await asyncio.gather(
        question.try_ask(client, asked, left_ms),
        question.try_ask(client, dict.fromkeys(asked, ANY_TIME_MS), left_ms),
    )
    refused = {**ends.refused, **found.refused, **oldest.refused}
    errors = {**ends.errors, **found.errors, **oldest.errors}
    answers = {
        tp: starting_point(targets[tp], ends.answers[tp], found_in(found.answers[tp]), found_in(oldest.answers[tp]))
        for tp in asked
        if tp not in refused and tp not in errors
    }
    return Outcomes(answers, refused, {tp: error for tp, error in errors.items() if tp not in refused})


def starting_point(
    target_ms: int,
    end: ListOffsetsPartitionResponse,
    found: OffsetAndTimestamp | None,
    oldest: OffsetAndTimestamp | None,
) -> StartingPoint:
    """Of what was told of one partition: its end, the first record at or after the target, its first record."""
    if found is None:
        epoch = end.leader_epoch if end.leader_epoch >= 0 else None
        if oldest is not None:
            return StartingPoint(end.offset, Start.PAST_END, None, epoch)
        return StartingPoint(end.offset, Start.EMPTY, None, epoch, _older_than(end.offset))
    offset, timestamp, epoch = found
    # Not "equal": between the two questions the log may have lost its first records.
    if timestamp > target_ms and (oldest is None or offset <= oldest.offset):
        return StartingPoint(offset, Start.BEFORE_LOG_START, timestamp, epoch, _older_than(offset))
    return StartingPoint(offset, Start.FOUND, timestamp, epoch)


def _older_than(offset: int) -> Older:
    """Offsets begin at 0 and none is left out: what has no record any more had one."""
    return Older.GONE if offset > 0 else Older.NEVER_WRITTEN

"""Where a group is to go on: the rules of `reset`, one partition at a time. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidelog.client.consumer.offset_lookup import Ends
from tidelog.client.consumer.seek_to_time import StartingPoint, StartReason
from tidelog.errors import InvalidRequestError, TidelogError
from tidelog.model import TopicPartition
from tidelog.timestamps import Timestamp


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The first record that is still there."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """What comes after the last record."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """Where the group is, as far as that is in the partition."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """This offset in each partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many records further, or back where it is negative."""

    records: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record with this time (milliseconds, or an aware datetime) or a later one."""

    time: Timestamp


ResetTarget = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime


class Adjustment(StrEnum):
    """Why the new offset is not the one that was asked for."""

    LOG_START = "log_start"
    """It lies before the log, which starts there."""
    LOG_END = "log_end"
    """It lies behind the log, which ends there."""
    BEFORE_LOG_START = "before_log_start"
    """Every record is younger than the time: the log's start."""
    PAST_END = "past_end"
    """No record is that late: the log's end."""
    EMPTY = "empty"
    """There is no record: the log's end."""
    NOTHING_COMMITTED = "nothing_committed"
    """There is nothing to stay at: the log's end."""


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """What a reset makes of one partition.

    old_offset, new_offset    committed before and after; None: nothing is, or `error` keeps it from being known
    old_time, new_time        timestamps (ms) of the first record at or after each; None where there is none
    adjustment                why the new offset is another than the target says
    error                     why this partition cannot be reset, or was not
    """

    old_offset: int | None
    new_offset: int | None = None
    old_time: int | None = None
    new_time: int | None = None
    adjustment: Adjustment | None = None
    error: TidelogError | None = None


def resolve(
    tp: TopicPartition, target: ResetTarget, old: int | None, ends: Ends, found: StartingPoint | None
) -> tuple[int, Adjustment | None]:
    """The new offset within the log, and why it is not the one asked for.

    found   where the time of ToTime is
    InvalidRequestError for ShiftBy where nothing is committed.
    """
    match target:
        case ToEarliest():
            return ends.start, None
        case ToLatest():
            return ends.end, None
        case ToCurrent():
            return (ends.end, Adjustment.NOTHING_COMMITTED) if old is None else _clamp(old, ends)
        case ToOffset(offset):
            return _clamp(offset, ends)
        case ShiftBy(records):
            if old is None:
                raise InvalidRequestError(f"{tp}: nothing is committed that could be shifted")
            return _clamp(old + records, ends)
        case ToTime():
            assert found is not None
            offset, adjustment = _clamp(found.offset, ends)
            return offset, adjustment or _OF_START[found.reason]


_OF_START = {
    StartReason.FOUND: None,
    StartReason.BEFORE_LOG_START: Adjustment.BEFORE_LOG_START,
    StartReason.PAST_END: Adjustment.PAST_END,
    StartReason.EMPTY: Adjustment.EMPTY,
}


def _clamp(offset: int, ends: Ends) -> tuple[int, Adjustment | None]:
    if offset < ends.start:
        return ends.start, Adjustment.LOG_START
    if offset > ends.end:
        return ends.end, Adjustment.LOG_END
    return offset, None

"""The rules by which `reset` chooses a group's new offset, for one partition. No I/O."""

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
    """Reset to the log start offset.

    Example:

        admin.reset_consumer_group_offsets("billing", ToEarliest())
    """


@dataclass(frozen=True, slots=True)
class ToLatest:
    """Reset to the end of the log: the high watermark.

    Example:

        admin.reset_consumer_group_offsets("billing", ToLatest(), execute=True)
    """


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """Keep the committed offset, or move it to the nearest end of the log if it lies outside.

    A partition without a committed offset is set to the end of the log.

    Example:

        admin.reset_consumer_group_offsets("billing", ToCurrent(), [TopicPartition("orders", 0)])
    """


@dataclass(frozen=True, slots=True)
class ToOffset:
    """Reset to this offset in each partition, or to the nearest end of the log if the offset lies outside.

    Example:

        admin.reset_consumer_group_offsets("billing", ToOffset(0), [TopicPartition("orders", 0)])
    """

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Move the committed offset forward by this number of offsets, or back if it is negative, but within the log.

    A partition without a committed offset has an error.

    Example:

        admin.reset_consumer_group_offsets("billing", ShiftBy(-100))
    """

    records: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """Reset to the first record with this time (milliseconds, or an aware datetime) or a later one.

    Without such a record, reset to the end of the log.

    Example:

        from datetime import UTC, datetime, timedelta

        admin.reset_consumer_group_offsets("billing", ToTime(datetime.now(UTC) - timedelta(hours=1)))
    """

    time: Timestamp


ResetTarget = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime


class Adjustment(StrEnum):
    """The reason why the new offset differs from the requested one."""

    LOG_START = "log_start"
    """The requested offset lies before the log: the log's start."""
    LOG_END = "log_end"
    """The requested offset lies after the log: the log's end."""
    BEFORE_LOG_START = "before_log_start"
    """Every record is newer than the time: the first record."""
    PAST_END = "past_end"
    """Every record is older than the time: the log's end."""
    EMPTY = "empty"
    """The partition has no record: the log's end."""
    NOTHING_COMMITTED = "nothing_committed"
    """The group has no committed offset to keep: the log's end."""


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The reset of one partition.

    old_offset           the committed offset before; None: there is none
    new_offset           the offset to commit, or committed; None if `error` prevents it
    old_time, new_time   the timestamps (ms) of the first record at or after each; None if the offset is outside the
                         log, no record follows, or the record was not found in time
    adjustment           why the new offset differs from the target; None: it does not
    error                why this partition cannot be reset, or was not reset
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
    """Return the new offset within the log, and why it differs from the target (None: it does not).

    `found` is the look-up result for ToTime, else None. Raises InvalidRequestError for ShiftBy without a committed
    offset.
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
                raise InvalidRequestError(f"{tp}: cannot shift, because the group has no committed offset")
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

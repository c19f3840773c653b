"""Convert times of programs: milliseconds since 1970, or datetimes with a time zone."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta
from operator import index

from tidelog.errors import ArgumentTypeError, ArgumentValueError, SecondsForMillisecondsWarning

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LARGEST_TIMESTAMP_MS = (1 << 63) - 1
_MILLISECOND = timedelta(milliseconds=1)
#: As seconds: September 2001 to November 2286. As milliseconds: fifteen weeks of 1970, a time without any logs.
_LOOKS_LIKE_SECONDS = range(10**9, 10**10)

Timestamp = int | datetime


def to_timestamp_ms(time: Timestamp, what: str = "timestamp_ms", most_ms: int = LARGEST_TIMESTAMP_MS) -> int:
    """Return the time in milliseconds since 1970; a datetime's microseconds are rounded down.

    Raises ArgumentValueError for a naive datetime, a time before 1970 or a time after `most_ms`, and ArgumentTypeError
    for other values. Both begin with `what`.
    """
    if type(time) is int and 0 <= time <= most_ms:
        return time
    whole = _since_epoch(time, what) // _MILLISECOND if isinstance(time, datetime) else _whole(time, what)
    return _in_range(whole, what, time, most_ms)


def to_target_ms(time: Timestamp, what: str) -> int:
    """Return the target of a look-up in milliseconds since 1970; a datetime's microseconds are rounded up.

    A record of the same millisecond may be older than the datetime, so rounding down would find it. Raises the errors
    of `to_timestamp_ms`.
    """
    whole = -(-_since_epoch(time, what) // _MILLISECOND) if isinstance(time, datetime) else _whole(time, what)
    return _in_range(whole, what, time, LARGEST_TIMESTAMP_MS)


def looks_like_seconds(timestamp_ms: int) -> bool:
    """Return whether the value may be seconds that were given as milliseconds: from 10⁹ to 10¹⁰−1."""
    return timestamp_ms in _LOOKS_LIKE_SECONDS


def warn_of_seconds(what: str, timestamp_ms: int) -> None:
    """Issue a SecondsForMillisecondsWarning, which begins with `what`, if the value looks like seconds.

    A look-up with such a value would find every record, and raise no error.
    """
    if looks_like_seconds(timestamp_ms):
        warnings.warn(
            f"{what}: {timestamp_ms} ms is {format_time(timestamp_ms)}; "
            f"if seconds were meant, give milliseconds: {timestamp_ms * 1000}",
            SecondsForMillisecondsWarning,
            stacklevel=2,
        )


def format_time(timestamp_ms: int) -> str:
    """Return the time as ISO 8601 in UTC with milliseconds; outside the calendar's range the number as text."""
    try:
        moment = EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _since_epoch(time: datetime, what: str) -> timedelta:
    if time.tzinfo is None or time.utcoffset() is None:
        raise ArgumentValueError(f"{what}: {time.isoformat()} has no time zone; give an aware datetime or milliseconds")
    return time - EPOCH


def _whole(time: int, what: str) -> int:
    if isinstance(time, bool):
        raise ArgumentTypeError(f"{what} must be milliseconds or an aware datetime, not {time!r}")
    try:
        return index(time)
    except TypeError:
        raise ArgumentTypeError(f"{what} must be whole milliseconds or an aware datetime, not {time!r}") from None


def _in_range(milliseconds: int, what: str, time: Timestamp, most_ms: int) -> int:
    if not 0 <= milliseconds <= most_ms:
        given = time.isoformat() if isinstance(time, datetime) else time
        raise ArgumentValueError(f"{what} must be from 0 to {most_ms} ms since 1970, not {given}")
    return milliseconds

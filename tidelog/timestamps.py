"""Points in time as users write them: milliseconds since the epoch, or a datetime that says its zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from operator import index

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LARGEST = (1 << 63) - 1

Timestamp = int | datetime


def to_timestamp_ms(time: Timestamp, what: str = "timestamp_ms") -> int:
    """Milliseconds. ValueError for a naive datetime or a negative time, TypeError for anything else."""
    if isinstance(time, datetime):
        if time.tzinfo is None or time.utcoffset() is None:
            raise ValueError(f"{what}: {time.isoformat()} has no time zone; give an aware datetime or milliseconds")
        milliseconds = (time - _EPOCH) // _MILLISECOND
    elif isinstance(time, bool):
        raise TypeError(f"{what} must be milliseconds or an aware datetime, not {time!r}")
    else:
        try:
            milliseconds = index(time)
        except TypeError:
            raise TypeError(f"{what} must be whole milliseconds or an aware datetime, not {time!r}") from None
    if not 0 <= milliseconds <= _LARGEST:
        raise ValueError(f"{what} must not be negative nor beyond 64 bits: {milliseconds}")
    return milliseconds

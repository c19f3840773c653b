"""Points in a topic as people type them: beginning, end, an offset, or a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d|w)\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d+\Z", re.ASCII)
#: A bare number from here on is a time (September 2001 in ms): no partition holds a million million records.
SMALLEST_BARE_TIME_MS = 10**12
_LARGEST_TIME_MS = 2**63 - 1

TIME_HELP = "2026-11-21T09:30:00Z (or any offset), milliseconds since 1970, or -90s, -30m, -1h, -7d"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first record that is still there."""


@dataclass(frozen=True, slots=True)
class End:
    """Behind the last record that may be read now."""


@dataclass(frozen=True, slots=True)
class At:
    """The first record with this timestamp (ms) or a later one."""

    timestamp_ms: int


Position = Beginning | End | At | int  # an int is an offset


def parse_position(text: str, now_ms: int) -> Position:
    """`beginning`, `end`, an offset, or a time; ValueError says in one line what is wrong."""
    if text in ("beginning", "earliest"):
        return Beginning()
    if text in ("end", "latest"):
        return End()
    if text.isascii() and text.isdigit() and int(text) < SMALLEST_BARE_TIME_MS:
        return int(text)
    if _NUMBER.match(text) and int(text) < 0:
        raise ValueError(f"{text} is negative: offsets start at 0, and a time before now is written like -1h")
    return At(parse_time(text.removeprefix("@"), now_ms))


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch; ValueError says in one line what is wrong."""
    if _NUMBER.match(text):
        timestamp_ms = int(text)
    elif ago := _AGO.match(text):
        timestamp_ms = now_ms - round(float(ago[1]) * _UNITS_MS[ago[2]])
    elif text == "now":
        timestamp_ms = now_ms
    else:
        timestamp_ms = _from_iso(text)
    if timestamp_ms < 0:
        raise ValueError(f"{text} lies before 1970: a timestamp must not be negative")
    if timestamp_ms > _LARGEST_TIME_MS:
        raise ValueError(f"{text} is too large for a timestamp in milliseconds")
    return timestamp_ms


def _from_iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: give {TIME_HELP}") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text} does not say which time zone: add Z for UTC, or an offset such as +02:00")
    # Rounded up: a record of the same millisecond but before the microseconds asked for lies before them.
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def format_time(timestamp_ms: int) -> str:
    """ISO 8601 in UTC, or the number itself where no calendar reaches."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

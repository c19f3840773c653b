"""Parse times as people write them: `-1h`, `yesterday 12:00 Europe/Berlin`, ISO 8601, milliseconds."""

from __future__ import annotations

import difflib
import re
import warnings
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo

from tidelog.errors import ClockChangeWarning
from tidelog.timestamps import EPOCH, LARGEST_TIMESTAMP_MS, format_time

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d|w)\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)\Z", re.ASCII)
_ISO_T = re.compile(r"(?<=\d)T(?=\d)", re.ASCII)
_ZONE_BEHIND = re.compile(r"(?<=\d)(Z|[+-].*)\Z", re.ASCII)
_DAYS_BACK = {"today": 0, "yesterday": 1}

TIME_FORMS = (
    "2026-11-21T09:30:00Z (or +02:00), 'yesterday 12:00 Europe/Berlin', milliseconds since 1970, or -90s, -30m, -1h, "
    "-7d"
)


def parse_time(text: str, now_ms: int, zone: tzinfo | None = None) -> int:
    """Return the milliseconds since 1970 that a text of TIME_FORMS means; ValueError says in one line what is wrong.

    now_ms   the present time, to which `-1h`, `now`, `today` and `yesterday` refer
    zone     the time zone of a date or a day that names none; if None, such a text is rejected

    A fraction of a millisecond in a date is rounded up. A result before 1970 is rejected. If a clock change makes a
    local time occur twice, the first of the two is taken. If a clock change skips a local time, the instant of the
    change is taken. A ClockChangeWarning says so.
    """
    if _NUMBER.match(text):
        timestamp_ms = int(text)
    elif ago := _AGO.match(text):
        timestamp_ms = now_ms - round(float(ago[1]) * _UNITS_MS[ago[2]])
    elif text == "now":
        timestamp_ms = now_ms
    else:
        timestamp_ms = _from_calendar(text, now_ms, zone)
    if timestamp_ms < 0:
        raise ValueError(f"{text} is before 1970: a timestamp must not be negative")
    if timestamp_ms > LARGEST_TIMESTAMP_MS:
        raise ValueError(f"{text} is too large for a timestamp in milliseconds")
    return timestamp_ms


def parse_zone(text: str) -> tzinfo:
    """Return the time zone of `Z`, `UTC`, `+02:00` (or `+0200`) or a name such as `Europe/Berlin`.

    ValueError says what is wrong. For an unknown name it suggests a similar one, if there is any.
    """
    if text in ("Z", "UTC"):
        return UTC
    if offset := _OFFSET.match(text):
        distance = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if int(offset[3]) > 59 or distance >= timedelta(days=1):
            raise ValueError(f"{text} is not the offset of a time zone")
        return timezone(-distance if offset[1] == "-" else distance)
    try:
        return zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        pass
    known = zoneinfo.available_timezones()
    if not known:
        raise ValueError(f"no time zone {text!r}: this machine has no zone data (package tzdata); use +02:00 instead")
    close = difflib.get_close_matches(text, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ": a zone is written like Europe/Berlin, +02:00 or Z"
    raise ValueError(f"no time zone {text!r}{hint}")


def _from_calendar(text: str, now_ms: int, zone: tzinfo | None) -> int:
    """Return the milliseconds since 1970 of a day with an optional time (default 00:00) and zone, or of ISO 8601."""
    day_text, clock_text, zone_text = _split(text)
    try:
        clock = time.fromisoformat(clock_text) if clock_text else time()
        days_back = _DAYS_BACK.get(day_text)
        day = None if days_back is not None else date.fromisoformat(day_text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: give {TIME_FORMS}") from None
    if zone_text:
        zone = parse_zone(zone_text)
    if zone is None:
        raise ValueError(
            f"{text} does not say which time zone: add Z for UTC, or an offset such as +02:00, or a zone such as "
            "Europe/Berlin"
        )
    try:
        if day is None:
            day = (EPOCH + timedelta(milliseconds=now_ms)).astimezone(zone).date() - timedelta(days=days_back or 0)
        moment = _settled(datetime.combine(day, clock), zone)
        # Rounded up, because a record of the same millisecond, but before the requested microseconds, is older.
        return -((EPOCH - moment) // timedelta(milliseconds=1))
    except OverflowError:
        raise ValueError(f"{text} is outside the calendar's range") from None


def _split(text: str) -> tuple[str, str, str]:
    """Return the texts of day, time of day and zone, without validation; missing parts are empty.

    If the text has more parts, all three are empty.
    """
    day, *rest = _ISO_T.sub(" ", text, count=1).split() or [""]
    clock = rest.pop(0) if rest and rest[0][0].isdigit() else ""
    if behind := _ZONE_BEHIND.search(clock):  # 12:00Z, 12:00+02:00
        clock, rest = clock[: behind.start()], [behind[0], *rest]
    return (day, clock, rest[0] if rest else "") if len(rest) < 2 else ("", "", "")


def _settled(local: datetime, zone: tzinfo) -> datetime:
    """Return the instant of a local time in UTC; warn with ClockChangeWarning as `parse_time` says."""
    first, second = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        return first
    shown = f"{local.isoformat(sep=' ', timespec='minutes')} {zone}"
    if first < second:
        warnings.warn(
            f"{shown} occurred twice, because the clocks went back: taking the first, {_shown(first)}; "
            f"the second is {_shown(second)}",
            ClockChangeWarning,
            stacklevel=4,
        )
        return first
    change = _change_between(second, first, zone)
    warnings.warn(
        f"{shown} did not occur, because the clocks went forward: taking the instant of the change, {_shown(change)}",
        ClockChangeWarning,
        stacklevel=4,
    )
    return change


def _change_between(before: datetime, behind: datetime, zone: tzinfo) -> datetime:
    """Return the instant between the two from which the zone has another offset than `before`, at a whole second."""
    old, low, high = before.astimezone(zone).utcoffset(), 0, int((behind - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if (before + timedelta(seconds=middle)).astimezone(zone).utcoffset() == old:
            low = middle
        else:
            high = middle
    return before.replace(microsecond=0) + timedelta(seconds=high)


def _shown(moment: datetime) -> str:
    return format_time((moment - EPOCH) // timedelta(milliseconds=1))

"""Points in time as people write them: `-1h`, `yesterday 12:00 Europe/Berlin`, ISO 8601, milliseconds."""

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
    """Milliseconds since the epoch; ValueError says in one line what is wrong.

    zone   of a text that names none; without it such a text is refused

    A local time that a change of the clocks made happen twice stands for the first of the two, one that it left out
    for the moment of the change; a ClockChangeWarning says so.
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
        raise ValueError(f"{text} lies before 1970: a timestamp must not be negative")
    if timestamp_ms > LARGEST_TIMESTAMP_MS:
        raise ValueError(f"{text} is too large for a timestamp in milliseconds")
    return timestamp_ms


def parse_zone(text: str) -> tzinfo:
    """`Z`, `UTC`, `+02:00` or a name such as `Europe/Berlin`; ValueError says what is wrong."""
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
        raise ValueError(f"no time zone {text!r}: this machine knows none (package tzdata); give an offset like +02:00")
    close = difflib.get_close_matches(text, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ": a zone is written like Europe/Berlin, +02:00 or Z"
    raise ValueError(f"no time zone {text!r}{hint}")


def _from_calendar(text: str, now_ms: int, zone: tzinfo | None) -> int:
    """A day, perhaps a time of it, perhaps a zone, with spaces between them; or ISO 8601 with its T."""
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
        # Rounded up: a record of the same millisecond but before the microseconds asked for lies before them.
        return -((EPOCH - moment) // timedelta(milliseconds=1))
    except OverflowError:
        raise ValueError(f"{text} lies outside the calendar") from None


def _split(text: str) -> tuple[str, str, str]:
    """Day, time of the day, zone; what is left out is empty. Nothing says yet that they are such."""
    day, *rest = _ISO_T.sub(" ", text, count=1).split() or [""]
    clock = rest.pop(0) if rest and rest[0][0].isdigit() else ""
    if behind := _ZONE_BEHIND.search(clock):  # 12:00Z, 12:00+02:00
        clock, rest = clock[: behind.start()], [behind[0], *rest]
    return (day, clock, rest[0] if rest else "") if len(rest) < 2 else ("", "", "")


def _settled(local: datetime, zone: tzinfo) -> datetime:
    """The moment of a local time without zone; see `parse_time` for the two that are none or two."""
    first, second = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        return first
    shown = f"{local.isoformat(sep=' ', timespec='minutes')} {zone}"
    if first < second:
        warnings.warn(
            f"{shown} happened twice, as the clocks went back: taking the first, {_shown(first)}; "
            f"the second is {_shown(second)}",
            ClockChangeWarning,
            stacklevel=4,
        )
        return first
    change = _change_between(second, first, zone)
    warnings.warn(
        f"{shown} never happened, as the clocks went forward: taking the moment of the change, {_shown(change)}",
        ClockChangeWarning,
        stacklevel=4,
    )
    return change


def _change_between(before: datetime, behind: datetime, zone: tzinfo) -> datetime:
    """The second from which on another offset holds; zones change theirs at whole seconds."""
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

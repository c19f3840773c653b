"""Finds the time that a log line contains.

The first `_WINDOW` bytes are searched for the forms of `line_forms`. The first match wins, because a log's own stamp
stands before the times that its message quotes. A stamp without a zone is local. A stamp without a year takes the
latest year that is not in the future. A stamp before 1990, or more than an hour after `now_ms`, is ignored. A kernel's
`[12.345]` is ignored too, because it counts from an unknown boot.

This module reads no clock: the present time and the local zone are arguments.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from functools import lru_cache

from tools.demo.lines.line_forms import FORMS, Form, fraction_ms, seconds_ms

#: 1990-01-01T00:00:00Z. A clock without battery shows 1970 or 1980, and logs in use are younger.
EARLIEST_PLAUSIBLE_MS = 631_152_000_000
#: Clocks differ a little. A topic refuses later timestamps (`message.timestamp.after.max.ms`).
LATEST_AHEAD_MS = 3_600_000

_WINDOW = 320
_REMEMBERED_SECONDS = 4096
_YEARS_BACK = 8  # from one 29th of February to the one before it, across a year like 2100
_DAY_MS = 86_400_000

#: What each form contains. A line without it (a stack trace, a banner) is not searched further.
_TIME_LIKE = re.compile(rb"\d:\d\d|\d{6}|\d\.\d\d\.\d\d")


class LineTimes:
    """Finds the times in the lines of one source; the form of the last line is tried first."""

    def __init__(self, local_zone: tzinfo | None = None) -> None:
        """Use `local_zone` for stamps without a zone; None is this machine's zone."""
        self._local_zone = local_zone
        self._form: Form | None = None
        self._known: dict[tuple[bytes, bytes | None, int | None], int | None] = {}

    def timestamp_ms(self, line: bytes, now_ms: int) -> int | None:
        """Return the line's own time in milliseconds since 1970, or None if it has no plausible one."""
        stamp = self._remembered_form(line, now_ms)
        if stamp is None:
            stamp = self._any_form(line, now_ms)
        if stamp is None or not EARLIEST_PLAUSIBLE_MS <= stamp <= now_ms + LATEST_AHEAD_MS:
            return None
        return stamp

    def _remembered_form(self, line: bytes, now_ms: int) -> int | None:
        if self._form is None:
            return None
        match = self._form.pattern.search(line, 0, _WINDOW)
        if match is None or (match.start() and _TIME_LIKE.search(line, 0, match.start())):
            return None  # absent, or perhaps quoted by a line that is stamped in another form
        return self._read(self._form, match, now_ms)

    def _any_form(self, line: bytes, now_ms: int) -> int | None:
        if _TIME_LIKE.search(line, 0, _WINDOW) is None:
            return None
        matches = [(form, match) for form in FORMS if (match := form.pattern.search(line, 0, _WINDOW))]
        for form, match in sorted(matches, key=lambda found: found[1].start()):
            stamp = self._read(form, match, now_ms)
            if stamp is not None:
                self._form = form
                return stamp
        return None

    def _read(self, form: Form, match: re.Match[bytes], now_ms: int) -> int | None:
        """Return the match's time in milliseconds since 1970, with its fraction, or None if its fields are no date."""
        whole: int | None
        if form.ms_numerator:
            whole = int(match[1]) * form.ms_numerator // form.ms_denominator
        elif form.has_year:
            whole = self._second(form, match, None)
        else:
            whole = self._latest_past_second(form, match, now_ms)
        if whole is None or not form.has_fraction:
            return whole
        return whole + fraction_ms(match["fraction"])

    def _latest_past_second(self, form: Form, match: re.Match[bytes], now_ms: int) -> int | None:
        newest = _year_tomorrow(now_ms // _DAY_MS)
        for year in range(newest, newest - _YEARS_BACK - 1, -1):
            second = self._second(form, match, year)
            if second is not None and second <= now_ms:
                return second
        return None

    def _second(self, form: Form, match: re.Match[bytes], year: int | None) -> int | None:
        """Return `seconds_ms` of the match. Results are kept, because conversion is slow and lines share seconds."""
        key = (match[1], match["zone"] if form.has_zone else None, year)
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= _REMEMBERED_SECONDS:
                self._known.clear()
            second = self._known[key] = seconds_ms(match, self._local_zone, year)
            return second


@lru_cache(maxsize=8)
def _year_tomorrow(day: int) -> int:
    """Return the year of the day after this one (days since 1970), which may have begun in a time zone ahead."""
    return datetime.fromtimestamp((day + 1) * _DAY_MS // 1000, UTC).year

"""Lists the ways in which logs write a time, as patterns, and turns the fields of a match into milliseconds.

Group 1 of a pattern is the stamp down to the second. Named groups hold its fields. If a form has no `year`, the caller
supplies it. A form without `month` counts units since 1970.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rb"(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_CLOCK = rb"(?P<hour>\d\d?):(?P<minute>\d\d):(?P<second>\d\d)"
_HALF = rb"(?P<half> ?[AaPp][Mm]\b)?"
_FRACTION = rb"(?:[.,:](?P<fraction>\d{1,9})(?!\d))?"
_OFFSET = rb"[+-](?:0\d|1[0-4])"
_ZONE = rb"(?P<zone> ?(?:Z|UTC|GMT|" + _OFFSET + rb":?(?:00|15|30|45)(?!\d))(?![A-Za-z])|" + _OFFSET + rb"(?![\d:]))?"
_EPOCH_LEAD = rb"(?:\A(?:[\[(<\"']|- )?|audit\(|(?<!\w)(?:ts|time|timestamp|epoch|__REALTIME_TIMESTAMP)\"? ?[=:] ?\"?)"


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write a time.

    has_…   whether the pattern has this group
    ms_numerator / ms_denominator   the unit in ms of a count since 1970; 0 for other forms
    """

    name: str
    pattern: re.Pattern[bytes]
    has_year: bool
    has_zone: bool
    has_fraction: bool
    ms_numerator: int = 0
    ms_denominator: int = 1


def _form(name: str, *pattern: bytes, ms: tuple[int, int] = (0, 1)) -> Form:
    compiled = re.compile(b"".join(pattern))
    groups = compiled.groupindex
    return Form(name, compiled, "year" in groups, "zone" in groups, "fraction" in groups, *ms)


#: Several forms may match a line. The leftmost match is the line's own time. At the same place the earlier form wins.
FORMS = (
    # 2024-01-02T03:04:05.678+01:00, RFC 5424, `03:04:05,678` (log4j), 2024/01/02 (nginx), PostgreSQL, short-iso
    _form(
        "iso",
        rb"((?P<year>\d{4})(?P<separator>[-/.])(?P<month>\d\d?)(?P=separator)(?P<day>\d\d?)(?:[Tt_:-]| {1,3})",
        rb"(?P<hour>\d\d?)[:.](?P<minute>\d\d)(?:[:.](?P<second>\d\d))?)(?!\d)" + _FRACTION + _ZONE,
    ),
    # 20240102T030405Z, 20240102-03:04:05:678
    _form(
        "packed",
        rb"(?<!\d)((?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)[T _-]",
        rb"(?P<hour>\d\d?):?(?P<minute>\d\d?):?(?P<second>\d\d?))(?!\d)" + _FRACTION + _ZONE,
    ),
    # [10/Oct/2000:13:55:36 -0700] (Apache), 02-Jan-2024 03:04:05.678 (Tomcat), 02 Jan 2024 03:04:05 (RFC 2822, Redis)
    _form(
        "day month year",
        rb"((?P<day>\d\d?)(?P<separator>[-/ ])" + _MONTH + rb"(?P=separator)(?P<year>\d{4})[: T]" + _CLOCK + rb")",
        rb"(?!\d)" + _FRACTION + _ZONE,
    ),
    # Jan 02, 2024 3:04:05 PM (java.util.logging), Jan  2 2024 03:04:05 (Cisco)
    _form(
        "month day year",
        rb"("
        + _MONTH
        + rb" {1,2}(?P<day>\d\d?),? (?P<year>\d{4}),? "
        + _CLOCK
        + _HALF
        + rb")(?!\d)"
        + _FRACTION
        + _ZONE,
    ),
    # Wed Oct 11 14:32:52.123456 2000 (Apache's error log, dmesg -T), Wed Oct 11 14:32:52 UTC 2000 (date)
    _form(
        "ctime",
        rb"(" + _MONTH + rb" {1,2}(?P<day>\d\d?) " + _CLOCK + rb"(?:\.(?P<fraction>\d{1,9}))?",
        rb"(?P<zone> (?:UTC|GMT))? (?P<year>(?:19|20)\d\d))(?![\d:-])",
    ),
    # Jan  2 03:04:05 (RFC 3164)
    _form("syslog", rb"(" + _MONTH + rb" {1,2}(?P<day>\d\d?) " + _CLOCK + rb")(?!\d)" + _FRACTION),
    # I0102 03:04:05.678901 (glog)
    _form("glog", rb"\A[IWEFD]((?P<month>\d\d)(?P<day>\d\d) " + _CLOCK + rb")(?!\d)" + _FRACTION),
    # 01-02 03:04:05.678 (Android)
    _form("month-day", rb"\A\[?((?P<month>\d\d)[-.](?P<day>\d\d) " + _CLOCK + rb")(?!\d)" + _FRACTION),
    # 24/01/02 03:04:05 (Hadoop, Spark)
    _form("short year", rb"\A\[?((?P<year>\d\d)/(?P<month>\d\d)/(?P<day>\d\d) " + _CLOCK + rb")(?!\d)" + _FRACTION),
    # 240102  3:04:05 (old MySQL), 240102 030405 (HDFS)
    _form(
        "packed short year",
        rb"\A((?P<year>\d\d)(?P<month>\d\d)(?P<day>\d\d) {1,2}",
        rb"(?P<hour>\d\d?):?(?P<minute>\d\d):?(?P<second>\d\d))(?!\d)",
    ),
    # 1/2/2024 3:04:05 PM (Windows): the month stands first, unless it cannot be one
    _form(
        "month/day/year",
        rb"((?P<month>\d\d?)/(?P<day>\d\d?)/(?P<year>\d{4}),? " + _CLOCK + _HALF + rb")(?!\d)" + _FRACTION + _ZONE,
    ),
    # 02.01.2024 03:04:05
    _form(
        "day.month.year",
        rb"((?P<day>\d\d?)(?P<separator>[.-])(?P<month>\d\d?)(?P=separator)(?P<year>\d{4}),?[ T]" + _CLOCK + rb")",
        rb"(?!\d)" + _FRACTION + _ZONE,
    ),
    # 1704164645.678 at the start (squid, short-unix), or where a field says so (JSON, logfmt, auditd)
    _form("epoch s", _EPOCH_LEAD, rb"(\d{10})(?:\.(?P<fraction>\d{1,9}))?(?![\d./-])", ms=(1000, 1)),
    _form("epoch ms", _EPOCH_LEAD, rb"(\d{13})(?![\d:/-])", ms=(1, 1)),
    _form("epoch µs", _EPOCH_LEAD, rb"(\d{16})(?![\d:/-])", ms=(1, 1000)),
    _form("epoch ns", _EPOCH_LEAD, rb"(\d{19})(?![\d:/-])", ms=(1, 1_000_000)),
)


def seconds_ms(match: re.Match[bytes], local_zone: tzinfo | None, year: int | None = None) -> int | None:
    """Return the match's time in milliseconds since 1970, without its fraction, or None if its fields are no date.

    The form must not be a count since 1970. `local_zone` is used for a stamp without a zone (None: this machine's),
    `year` for a form without one.
    """
    fields = match.groupdict(b"")
    year = int(fields["year"]) if year is None else year
    if year < 100:
        year += 1900 if year >= 70 else 2000
    name = fields["month"]
    month, day = _MONTHS.index(name.decode().lower()) + 1 if name.isalpha() else int(name), int(fields["day"])
    if month > 12 and b"/" in match[1]:
        month, day = day, month
    hour, second = int(fields["hour"]), int(fields["second"] or 0)
    if half := fields.get("half", b"").strip().lower():
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == b"pm" else 0)
    leap = 1 if second == 60 else 0  # a leap second is computed as the second before it, plus one
    try:
        moment = datetime(
            year, month, day, hour, int(fields["minute"]), second - leap, tzinfo=_zone(fields.get("zone")) or local_zone
        )
        return (int(moment.timestamp()) + leap) * 1000
    except (ValueError, OverflowError):
        return None


def fraction_ms(fraction: bytes | None) -> int:
    """Return the milliseconds of a fraction of a second, given by its digits, truncated; 0 for None."""
    return int((fraction + b"00")[:3]) if fraction else 0


def _zone(text: bytes | None) -> tzinfo | None:
    text = (text or b"").strip()
    if not text:
        return None
    if text.isalpha():
        return UTC
    digits = text[1:].replace(b":", b"")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    return timezone(-offset if text.startswith(b"-") else offset)

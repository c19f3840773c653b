"""Test the parsing of times as people write them."""

from __future__ import annotations

import re
import warnings
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import ClockChangeWarning
from tidelog.time_parsing import parse_time, parse_zone
from tidelog.timestamps import format_time

NOW_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("5", 5),
        ("now", NOW_MS),
        ("2027-01-15T10:00:00.250+02:00", NOW_MS + 250),
        ("1970-01-01T00:00Z", 0),
        ("1970-01-01T00:00:00.000001Z", 1),
    ],
)
def test_a_time_is_a_number_of_milliseconds_or_iso_8601(text: str, timestamp_ms: int) -> None:
    assert parse_time(text, NOW_MS) == timestamp_ms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2027-01-15T08:00:00", "add Z for UTC, or an offset"),
        ("2027-01-15", "add Z for UTC, or an offset"),
        ("-5", "must not be negative"),
        ("1969-12-31T23:59:59Z", "must not be negative"),
        ("-1000000h", "must not be negative"),
        ("99999999999999999999", "too large"),
        ("yesteryear", "is not a time: give 2026"),
        ("", "is not a time"),
        ("１２", "is not a time"),
    ],
)
def test_invalid_time_is_rejected_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        parse_time(text, NOW_MS)
    assert "\n" not in str(refused.value)


@given(st.integers(0, 253_402_300_799_999))
def test_formatted_time_can_be_parsed(timestamp_ms: int) -> None:
    assert parse_time(format_time(timestamp_ms), NOW_MS) == timestamp_ms


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("yesterday 12:00 Europe/Berlin", "2027-01-14T11:00:00.000Z"),
        ("yesterday 12:00 +02:00", "2027-01-14T10:00:00.000Z"),
        ("yesterday 12:00Z", "2027-01-14T12:00:00.000Z"),
        ("yesterday Z", "2027-01-14T00:00:00.000Z"),
        ("today 06:30:15.250 UTC", "2027-01-15T06:30:15.250Z"),
        ("today Pacific/Kiritimati", "2027-01-14T10:00:00.000Z"),  # where it is 22 o'clock already
        ("yesterday 00:00 Pacific/Pago_Pago", "2027-01-13T11:00:00.000Z"),  # where it is still the 14th
        ("2026-07-01 12:00 Europe/Berlin", "2026-07-01T10:00:00.000Z"),
        ("2026-07-01T12:00 America/New_York", "2026-07-01T16:00:00.000Z"),
        ("2026-07-01 12:00 -0530", "2026-07-01T17:30:00.000Z"),
        ("20260701T1200Z", "2026-07-01T12:00:00.000Z"),
    ],
)
def test_a_day_and_a_zone_make_a_moment(text: str, shown: str) -> None:
    assert format_time(parse_time(text, NOW_MS)) == shown


def test_text_without_a_zone_uses_the_given_zone() -> None:
    assert format_time(parse_time("yesterday 12:00", NOW_MS, BERLIN)) == "2027-01-14T11:00:00.000Z"
    assert format_time(parse_time("2026-07-01", NOW_MS, BERLIN)) == "2026-06-30T22:00:00.000Z"
    assert format_time(parse_time("yesterday 12:00 Z", NOW_MS, BERLIN)) == "2027-01-14T12:00:00.000Z"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yesterday 12:00", "does not say which time zone"),
        ("yesterday 25:00 Z", "is not a time"),
        ("yesterday 12:00 Z Z", "is not a time"),
        ("12:00 Z", "is not a time"),
        ("T", "is not a time"),
        ("2026-07-01 12:00 Europe/Berln", "no time zone 'Europe/Berln'; did you mean Europe/Berlin?"),
        ("2026-07-01 12:00 ../../etc/passwd", "no time zone '../../etc/passwd': a zone is written like"),
        ("2026-07-01 12:00 +25:00", "+25:00 is not the offset of a time zone"),
        ("0001-01-01 00:00 +01:00", "is outside the calendar"),
        ("9999-12-31 23:59 -01:00", "is outside the calendar"),
    ],
)
def test_invalid_day_or_zone_is_rejected_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        parse_time(text, NOW_MS)
    assert "\n" not in str(refused.value)


def test_hour_that_occurs_twice_means_the_first_with_a_warning() -> None:
    with pytest.warns(ClockChangeWarning, match="occurred twice.*2026-10-25T00:30:00.000Z.*second is 2026-10-25T01:30"):
        assert format_time(parse_time("2026-10-25 02:30", NOW_MS, BERLIN)) == "2026-10-25T00:30:00.000Z"


def test_skipped_hour_means_the_instant_of_the_change_with_a_warning() -> None:
    with pytest.warns(ClockChangeWarning, match="did not occur.*2026-03-29T01:00:00.000Z"):
        assert format_time(parse_time("2026-03-29 02:30:00.5", NOW_MS, BERLIN)) == "2026-03-29T01:00:00.000Z"


@given(
    st.datetimes(datetime(1995, 1, 1), datetime(2030, 1, 1)), st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe"])
)
def test_local_time_is_the_first_instant_whose_clock_shows_at_least_it(local: datetime, name: str) -> None:
    local, zone = local.replace(second=0, microsecond=0), ZoneInfo(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        moment = datetime.fromtimestamp(parse_time(f"{local.isoformat()} {name}", NOW_MS) / 1000, UTC)
    assert moment.astimezone(zone).replace(tzinfo=None) >= local
    earlier = [moment - timedelta(minutes=minutes) for minutes in range(1, 120)]
    assert all(each.astimezone(zone).replace(tzinfo=None) < local for each in earlier)


@pytest.mark.parametrize("text", ["", "Europe", "Mars/Olympus", "+2", "02:00", "+02:60"])
def test_invalid_zone_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="zone"):
        parse_zone(text)

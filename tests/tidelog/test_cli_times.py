from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.times import At, Beginning, End, Position, format_time, parse_position, parse_time

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Beginning()),
        ("end", End()),
        ("0", 0),
        ("42", 42),
        ("999999999999", 999_999_999_999),
        ("1000000000000", At(1_000_000_000_000)),
        ("@5", At(5)),
        ("-1h", At(NOW_MS - 3_600_000)),
        ("-1.5m", At(NOW_MS - 90_000)),
        ("2027-01-15T08:00:00Z", At(NOW_MS)),
    ],
)
def test_a_position_is_a_word_an_offset_or_a_time(text: str, position: Position) -> None:
    assert parse_position(text, NOW_MS) == position


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
    ("text", "told"),
    [
        ("2027-01-15T08:00:00", "add Z for UTC, or an offset"),
        ("2027-01-15", "add Z for UTC, or an offset"),
        ("-5", "must not be negative"),
        ("1969-12-31T23:59:59Z", "must not be negative"),
        ("-1000000h", "must not be negative"),
        ("99999999999999999999", "too large"),
        ("yesterday", "is not a time: give 2026"),
        ("", "is not a time"),
        ("１２", "is not a time"),
    ],
)
def test_what_is_no_time_is_refused_with_the_way_out(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)) as refused:
        parse_time(text, NOW_MS)
    assert "\n" not in str(refused.value)


def test_a_negative_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="-5 is negative"):
        parse_position("-5", NOW_MS)


@given(st.integers(0, 253_402_300_799_999))
def test_what_is_shown_can_be_typed_again(timestamp_ms: int) -> None:
    assert parse_time(format_time(timestamp_ms), NOW_MS) == timestamp_ms

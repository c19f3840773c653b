"""Test which records of a partition belong to a time window, and where its reading ends, against a plain loop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.arrow import window_reading
from tidelog.arrow.time_window import DEFAULT_LATENESS, TimeWindow
from tidelog.arrow.window_reading import END_AFTER, WindowReading
from tidelog.errors import ArgumentTypeError, ArgumentValueError, SecondsForMillisecondsWarning

NOW = 1_800_000_000_000
HOUR = 3_600_000
bounds = st.none() | st.integers(0, 12)
windows = st.builds(TimeWindow, bounds, bounds, st.none() | st.integers(0, 4))


def selected_one_by_one(window: TimeWindow, timestamps: list[int], end_after: int) -> list[int]:
    """Return the places of the records that a scan selects, decided record by record."""
    found, run = [], 0
    for place, timestamp in enumerate(timestamps):
        is_bounded = window.since_ms is not None or window.until_ms is not None
        if (
            (timestamp >= 0 or not is_bounded)
            and (window.since_ms is None or timestamp >= window.since_ms)
            and (window.until_ms is None or timestamp < window.until_ms)
        ):
            found.append(place)
        ends = window.until_ms is not None and window.lateness_ms is not None
        run = run + 1 if ends and timestamp >= (window.until_ms or 0) + (window.lateness_ms or 0) else 0
        if run == end_after:
            break
    return found


@given(windows, st.lists(st.lists(st.integers(-1, 16), max_size=12), max_size=6), st.integers(1, 5))
def test_selection_equals_a_decision_for_each_record(
    window: TimeWindow, pieces: list[list[int]], end_after: int
) -> None:
    reading, found, first = WindowReading(window), [], 0
    with patch.object(window_reading, "END_AFTER", end_after):
        for piece in pieces:
            low, high, mask = reading.select(np.array(piece, np.int64))
            found += [first + row for row in range(low, high) if mask is None or mask[row - low]]
            first += len(piece)
    assert found == selected_one_by_one(window, [each for piece in pieces for each in piece], end_after)


def test_one_record_of_next_year_does_not_end_the_reading() -> None:
    reading = WindowReading(TimeWindow(NOW, NOW + HOUR, 0))
    stamps = np.array([NOW + 8760 * HOUR, NOW + 1, NOW + 2], np.int64)
    assert reading.select(stamps)[:2] == (1, 3) and not reading.has_ended


def test_a_thousand_later_records_end_the_reading() -> None:
    reading = WindowReading(TimeWindow(NOW, NOW + HOUR, 60_000))
    reading.select(np.full(END_AFTER - 1, NOW + HOUR + 60_000))
    assert not reading.has_ended
    reading.select(np.array([NOW + HOUR + 60_000, NOW + 1]))
    assert reading.has_ended
    assert reading.select(np.array([NOW + 1]))[:2] == (0, 0)


# --- the bounds that users give ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (NOW, NOW),
        (datetime(2026, 11, 28, 15, 30, tzinfo=UTC), 1_795_879_800_000),
        (datetime(2026, 11, 28, 15, 30, 0, 1, tzinfo=UTC), 1_795_879_800_001),
        ("2026-11-28T15:30:00Z", 1_795_879_800_000),
        ("@2026-11-28T16:30:00+01:00", 1_795_879_800_000),
        ("-1h", NOW - HOUR),
        (timedelta(hours=1), NOW - HOUR),
    ],
)
def test_a_bound_may_have_any_form_of_a_time(since: Any, expected: int) -> None:
    assert TimeWindow.of(since, None, None, NOW).since_ms == expected


@pytest.mark.parametrize(
    ("since", "until", "lateness", "complaint"),
    [
        (datetime(2026, 11, 28), None, None, "^since: 2026-11-28T00:00:00 has no time zone"),
        (None, "tomorrow", None, "^until: 'tomorrow' is not a time"),
        (None, "2026-11-28", None, "^until: 2026-11-28 does not say which time zone"),
        (NOW + 1, NOW, None, "^since .* must not be after until"),
        (-1, None, None, "^since must be from 0"),
        (timedelta(hours=-1), None, None, "^since must not be negative"),
        (timedelta(days=100_000), None, None, "^since: 100000 days, 0:00:00 ago is before 1970"),
        (None, None, timedelta(seconds=-1), "^allowed_lateness must not be negative"),
        (None, None, -1, "^allowed_lateness must be from 0"),
    ],
)
def test_wrong_bound_is_refused_by_name(since: Any, until: Any, lateness: Any, complaint: str) -> None:
    with pytest.raises(ArgumentValueError, match=complaint):
        TimeWindow.of(since, until, lateness, NOW)


@pytest.mark.parametrize("value", [1.5, b"now", True, ["now"]])
def test_bound_of_a_wrong_type_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"^until must be"):
        TimeWindow.of(None, value, DEFAULT_LATENESS, NOW)


def test_seconds_for_milliseconds_are_warned_of() -> None:
    with pytest.warns(SecondsForMillisecondsWarning, match="^until: 1795879800 ms is 1970"):
        TimeWindow.of(None, 1_795_879_800, None, NOW)

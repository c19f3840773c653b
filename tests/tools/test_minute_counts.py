"""Counts by minute, compared with a plain Counter, and their memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.demo.counts.minute_counts import MinuteCounts

MINUTES = st.integers(-200, 200) | st.integers(28_000_000, 28_000_200)


def counted(lines: Counter[int]) -> MinuteCounts:
    counts = MinuteCounts()
    for minute, number in lines.items():
        counts.add(minute, number)
    return counts


@given(st.lists(st.tuples(MINUTES, st.integers(1, 5))), MINUTES)
def test_minute_counts_equal_a_counter(added: list[tuple[int, int]], asked: int) -> None:
    counts, twin = MinuteCounts(), Counter[int]()
    for minute, lines in added:
        counts.add(minute, lines)
        twin[minute] += lines
    assert dict(counts) == dict(twin)
    assert len(counts) == len(twin)
    assert counts.get(asked, 0) == twin[asked]
    assert (asked in counts) == (asked in twin)


def test_minute_without_lines_is_absent_although_its_hour_exists() -> None:
    counts = counted(Counter({61: 2}))
    assert list(counts.items()) == [(61, 2)]
    with pytest.raises(KeyError):
        counts[62]
    with pytest.raises(KeyError):
        counts[1]


def test_hours_have_separate_minutes() -> None:
    assert dict(counted(Counter({0: 1, 60: 2, 120: 3}))) == {0: 1, 60: 2, 120: 3}


def test_half_a_year_of_busy_minutes_needs_little_memory() -> None:
    """A million lines of a log with four lines a minute. A dict would take 70 bytes a minute."""
    minutes = 250_000
    tracemalloc.start()
    try:
        counts = MinuteCounts()
        for minute in range(28_000_000, 28_000_000 + minutes):
            counts.add(minute, 4)
        kept_bytes, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(counts) == minutes
    assert kept_bytes < 12 * minutes
    assert peak_bytes < 15 * minutes

"""Lines by minute, held against a plain Counter, and what they cost."""

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
def test_they_say_what_a_counter_says(added: list[tuple[int, int]], asked: int) -> None:
    counts, twin = MinuteCounts(), Counter[int]()
    for minute, lines in added:
        counts.add(minute, lines)
        twin[minute] += lines
    assert dict(counts) == dict(twin)
    assert len(counts) == len(twin)
    assert counts.get(asked, 0) == twin[asked]
    assert (asked in counts) == (asked in twin)


def test_a_minute_without_lines_is_not_there_though_its_hour_is() -> None:
    counts = counted(Counter({61: 2}))
    assert list(counts.items()) == [(61, 2)]
    with pytest.raises(KeyError):
        counts[62]
    with pytest.raises(KeyError):
        counts[1]


def test_hours_do_not_share_their_minutes() -> None:
    assert dict(counted(Counter({0: 1, 60: 2, 120: 3}))) == {0: 1, 60: 2, 120: 3}


def test_half_a_year_of_busy_minutes_is_small() -> None:
    """A million lines of a log with four lines a minute; as a dict it takes 70 bytes a minute."""
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

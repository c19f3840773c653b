"""Test that long runs are drawn with few marks without losing information."""

from __future__ import annotations

from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from verify.chaos.report.facts import Level, Moments, Span
from verify.chaos.report.sampling import (
    Slices,
    counted,
    gaps,
    percentiles,
    summed,
    thinned,
    thinned_levels,
    thinned_spans,
)

moments = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 50)), max_size=200).map(Moments.of)
times = st.lists(st.integers(0, 1000), unique=True, min_size=1, max_size=200).map(sorted)


@given(moments, st.integers(1, 30))
def test_thinned_line_keeps_its_ends_and_peaks(drawn: Moments, count: int) -> None:
    kept = thinned(drawn, Slices(0, 1000, count))
    every = list(zip(drawn.times, drawn.values, strict=True))
    assert len(kept) <= 4 * count
    assert set(kept) <= set(every)
    assert kept == sorted(kept, key=lambda pair: pair[0])
    if every:
        assert (kept[0], kept[-1]) == (every[0], every[-1])
        assert {min(drawn.values), max(drawn.values)} <= {value for _, value in kept}


@given(times, st.integers(1, 30))
def test_thinned_spans_cover_the_same_time(begins: list[int], count: int) -> None:
    spans = [Span(begin, end, str(begin), 1) for begin, end in zip(begins, [*begins[1:], 1001], strict=True)]
    kept = thinned_spans(spans, Slices(0, 1000, count))
    assert len(kept) <= 2 * count
    assert (kept[0].begin, kept[-1]) == (begins[0], spans[-1])
    assert all(span.end == after.begin for span, after in pairwise(kept))


@given(times, st.integers(1, 30))
def test_thinned_levels_are_as_low_as_the_lowest(begins: list[int], count: int) -> None:
    levels = [Level(begin, end, begin % 7) for begin, end in zip(begins, [*begins[1:], 1001], strict=True)]
    kept = thinned_levels(levels, Slices(0, 1000, count))
    assert len(kept) <= 2 * count
    assert min(level.height for level in kept) == min(level.height for level in levels)
    assert kept[-1] == levels[-1]


def test_several_short_spans_become_one_without_a_broker() -> None:
    spans = [Span(0, 1, "4", 1), Span(1, 2, "5", 2), Span(2, 3, "6", 1), Span(3, 100, "7", 2)]
    assert thinned_spans(spans, Slices(0, 100, 10)) == [Span(0, 3, "several: 4 … 6"), Span(3, 100, "7", 2)]


@given(moments, st.integers(1, 30))
def test_every_value_is_counted_once(drawn: Moments, count: int) -> None:
    slices = Slices(0, 1000, count)
    assert sum(counted(drawn.times, slices)) == len(drawn.times)
    assert sum(summed(drawn, slices)) == sum(drawn.values)


def test_percentiles_are_those_of_their_part_or_none() -> None:
    drawn = Moments.of([(0, 5), (1, 1), (2, 3), (9, 8)])
    assert percentiles(drawn, Slices(0, 12, 4), (0.5, 1.0)) == [[3, 5], None, None, [8, 8]]


def test_gap_is_longer_than_its_limit_and_may_reach_the_end() -> None:
    assert gaps(array("q", [10, 20, 50]), 10, 100, 29) == [(20, 50), (50, 100)]

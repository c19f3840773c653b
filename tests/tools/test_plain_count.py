"""The count without Spark from a starting time, and the comparison of two counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tools.demo.counts.plain_count import Comparison, PlainCount, compare

TIMES = st.lists(st.integers(0, 10_000_000), min_size=1)


@given(TIMES, TIMES, st.integers(0, 10_000_000))
def test_lines_before_and_after_the_choice_are_counted_alike(early: list[int], late: list[int], start: int) -> None:
    count = PlainCount()
    for stamp in early:
        count.add(stamp, "a")
    count.start_from(start)
    for stamp in late:
        count.add(stamp, "a")
    everything = early + late
    assert count.total == sum(stamp >= start for stamp in everything)
    assert count.excluded == len(everything) - count.total
    for minute, lines in count.counts.get("a", {}).items():
        assert lines == sum(stamp // 60_000 == minute and stamp >= start for stamp in everything)


def test_comparison_separates_missing_from_surplus_lines() -> None:
    plain = {"a": {0: 5, 1: 1}, "b": {0: 2}}
    assert compare(plain, dict(plain)) == Comparison(0, 0)
    assert compare(plain, {"a": {0: 3, 1: 1}}) == Comparison(4, 0)
    assert compare(plain, {"a": {0: 6, 1: 1, 2: 1}, "b": {0: 2}, "c": {0: 1}}) == Comparison(0, 3)
    assert compare(plain, {"a": {0: 5, 1: 1}, "b": {1: 2}}) == Comparison(2, 2)

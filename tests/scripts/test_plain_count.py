"""The count without Spark, the point in time from which it counts, and how two counts are compared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mainjob.plain_count import Comparison, PlainCount, choose_start, compare

TIMES = st.lists(st.integers(0, 10_000_000), min_size=1)


@given(TIMES)
def test_the_chosen_time_excludes_at_least_one_of_what_is_known(times: list[int]) -> None:
    assert min(times) < choose_start(times)


@given(st.lists(st.integers(0, 10_000_000), min_size=10, unique=True))
def test_the_chosen_time_leaves_most_of_it(times: list[int]) -> None:
    start = choose_start(times)
    assert sum(stamp >= start for stamp in times) >= len(times) * 0.8


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
    assert all(minute % 60_000 == 0 for minute, _ in count.counts)
    for (minute, _), lines in count.counts.items():
        assert lines == sum(minute <= stamp < minute + 60_000 and stamp >= start for stamp in everything)


def test_a_comparison_tells_lines_that_lack_from_lines_too_many() -> None:
    plain = {(0, "a"): 5, (0, "b"): 2, (60_000, "a"): 1}
    assert compare(plain, dict(plain)) == Comparison(0, 0)
    assert compare(plain, {(0, "a"): 3, (60_000, "a"): 1}) == Comparison(4, 0)
    assert compare(plain, {**plain, (0, "a"): 6, (120_000, "a"): 1}) == Comparison(0, 2)

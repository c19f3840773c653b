"""From when the stream counts, and how late a line may come for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tools.demo.lines.event_time import choose_start, watermark

MINUTE = 60_000
NOW = 1_000_000 * MINUTE
TIMES = st.lists(st.integers(0, 10_000_000), min_size=1)


@given(TIMES)
def test_the_chosen_time_excludes_at_least_one_of_what_is_known(times: list[int]) -> None:
    assert min(times) < choose_start(times)


@given(st.lists(st.integers(0, 10_000_000), min_size=10, unique=True))
def test_the_chosen_time_leaves_most_of_it(times: list[int]) -> None:
    start = choose_start(times)
    assert sum(stamp >= start for stamp in times) >= len(times) * 0.8


def test_a_line_may_come_ten_minutes_late_at_least() -> None:
    assert watermark([], False, NOW) == "10 minutes"
    assert watermark([], True, NOW) == "10 minutes"
    assert watermark([5 * MINUTE, 7 * MINUTE], False, NOW) == "10 minutes"


def test_a_log_that_is_told_faster_than_it_happened_gets_what_its_read_ahead_spans() -> None:
    assert watermark([300 * MINUTE, 100 * MINUTE], False, NOW) == "200 minutes"


def test_old_lines_are_not_late_because_others_arrive_today() -> None:
    assert watermark([NOW - 5000 * MINUTE], True, NOW) == f"{5000 + 24 * 60} minutes"

"""The starting time and the watermark of the stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tools.demo.lines.event_time import choose_start, watermark

MINUTE = 60_000
NOW = 1_000_000 * MINUTE
TIMES = st.lists(st.integers(0, 10_000_000), min_size=1)


@given(TIMES)
def test_chosen_time_excludes_at_least_one_known_line(times: list[int]) -> None:
    assert min(times) < choose_start(times)


@given(st.lists(st.integers(0, 10_000_000), min_size=10, unique=True))
def test_chosen_time_keeps_most_known_lines(times: list[int]) -> None:
    start = choose_start(times)
    assert sum(stamp >= start for stamp in times) >= len(times) * 0.8


def test_watermark_is_at_least_ten_minutes() -> None:
    assert watermark([], False, NOW) == "10 minutes"
    assert watermark([], True, NOW) == "10 minutes"
    assert watermark([5 * MINUTE, 7 * MINUTE], False, NOW) == "10 minutes"


def test_watermark_covers_the_span_of_the_lines_read_ahead() -> None:
    assert watermark([300 * MINUTE, 100 * MINUTE], False, NOW) == "200 minutes"


def test_old_lines_are_not_late_beside_lines_without_a_time() -> None:
    assert watermark([NOW - 5000 * MINUTE], True, NOW) == f"{5000 + 24 * 60} minutes"

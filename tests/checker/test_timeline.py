"""Test the running maximum against a linear search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from verify.checker.timeline import RunningMax

MOMENTS = st.integers(0, 12)
STEPS = st.lists(st.tuples(st.booleans(), MOMENTS, st.integers(-5, 5)), max_size=40)


@given(STEPS, st.booleans())
def test_running_max_is_right_for_values_added_in_any_order(steps: list[tuple[bool, int, int]], in_order: bool) -> None:
    line, entries, now = RunningMax(), [], 0
    for asks, moment, value in steps:
        if asks:
            before = [each for at, each in entries if at < moment]
            until = [each for at, each in entries if at <= moment]
            assert line.before(moment) == max(before, default=None)
            assert line.until(moment) == max(until, default=None)
        else:
            now = now + moment if in_order else moment
            line.add(now, value)
            entries.append((now, value))
    assert line.before(10_000) == max((each for _, each in entries), default=None)


@given(st.lists(st.tuples(MOMENTS, st.integers())), st.lists(st.tuples(MOMENTS, st.integers())))
def test_running_max_takes_many_values_at_once(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    line = RunningMax(first)
    line.before(5)
    line.extend([at for at, _ in second], [each for _, each in second])
    assert line.until(5) == max((each for at, each in first + second if at <= 5), default=None)

"""Test that the rate is fixed, however irregular the calls are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from verify.chaos.clients.support.pace import Pace

SECOND = 1_000_000_000


@given(st.integers(1, 5_000), st.lists(st.integers(0, 3 * SECOND), max_size=50))
def test_every_operation_is_due_or_counted_as_left_out(rate: int, waits: list[int]) -> None:
    pace, now, given_out = Pace(rate, 0), 0, 0
    for wait in waits:
        now += wait
        given_out += pace.due(now)
    assert given_out + pace.left_out == now * rate // SECOND


def test_late_operations_are_made_up_for() -> None:
    pace = Pace(100, 0)
    assert pace.due(SECOND // 2) == 50
    assert pace.due(SECOND // 2) == 0
    assert pace.due(SECOND) == 50


def test_operations_beyond_a_second_are_counted_as_left_out() -> None:
    pace = Pace(100, 0)
    assert pace.due(10 * SECOND) == 100
    assert pace.left_out == 900

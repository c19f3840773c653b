"""The limits of the steps: even few lines are spread before, during and after the kill."""

from __future__ import annotations

import pytest

from tools.demo.feed import pace
from tools.demo.feed.pace import Pace, Stage


def sent_in(stage: Stage, held: int, seconds: float, full: bool = False) -> int:
    """Return how many of `held` lines are sent if the limit is asked every 10 ms."""
    clock = Pace(stage)
    left = held
    for now_ms in range(0, int(seconds * 1000) + 1, 10):
        left -= clock.allowance(now_ms, left, full)
    return held - left


def test_rate_is_kept_over_time() -> None:
    assert sent_in(Stage("s", 250.0, 0), 10_000, 2.0) == 500


def test_kept_lines_are_not_sent() -> None:
    assert sent_in(Stage("s", None, 90), 100, 1.0) == 10
    assert sent_in(Stage("s", 1000.0, 100), 100, 1.0) == 0


def test_full_store_is_sent_without_limit() -> None:
    assert Pace(Stage("s", 1.0, 20_000)).allowance(0, 20_000, full=True) > 100


def test_flood_has_its_own_rate_and_keeps_no_line() -> None:
    assert sent_in(Stage("s", 1.0, 20_000, flood=5000.0), 20_000, 2.0, full=True) == 10_000


def test_pause_of_the_caller_is_not_followed_by_a_burst() -> None:
    clock = Pace(Stage("s", 1000.0, 0))
    clock.allowance(0, 10_000, False)
    assert clock.allowance(60_000, 10_000, False) <= 100


@pytest.mark.parametrize("known", [1, 2, 10, 100, 1000, 8_500, 20_000])
def test_every_stage_leaves_lines_for_later_stages(known: int) -> None:
    held = known
    for stage_of, seconds in (
        (pace.head, 5.0),
        (pace.waiting, 60.0),
        (pace.before_kill, 60.0),
        (pace.during_gap, 60.0),
    ):
        held -= sent_in(stage_of(held), held, seconds)
        assert held > 0 or known < 5
    if known >= 1000:
        assert held >= known // 6


@pytest.mark.parametrize("known", [1000, 8_500, 20_000])
def test_enough_lines_are_sent_before_the_kill_to_see_a_gap(known: int) -> None:
    assert sent_in(pace.before_kill(known), known, 1.0) >= 200

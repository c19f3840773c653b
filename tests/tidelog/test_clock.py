"""Test that the clock of waits never jumps, even if the wall clock does."""

from __future__ import annotations

import time

import pytest

from tidelog.clock import SystemClock


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_setting_the_wall_clock_moves_no_deadline(monkeypatch: pytest.MonkeyPatch, jump_s: int) -> None:
    clock, wall_ns = SystemClock(), time.time_ns
    before_ms, began_ms = clock.now_ms(), clock.monotonic_ms()
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + jump_s * 1_000_000_000)
    assert abs(clock.now_ms() - before_ms - jump_s * 1000) < 60_000
    assert 0 <= clock.monotonic_ms() - began_ms < 60_000

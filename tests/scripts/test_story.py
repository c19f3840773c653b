"""What the story decides by itself."""

from __future__ import annotations

from mainjob.story import watermark

MINUTE = 60_000
NOW = 1_000_000 * MINUTE


def test_a_line_may_come_ten_minutes_late_at_least() -> None:
    assert watermark([], False, NOW) == "10 minutes"
    assert watermark([], True, NOW) == "10 minutes"
    assert watermark([5 * MINUTE, 7 * MINUTE], False, NOW) == "10 minutes"


def test_a_log_that_is_told_faster_than_it_happened_gets_what_its_read_ahead_spans() -> None:
    assert watermark([300 * MINUTE, 100 * MINUTE], False, NOW) == "200 minutes"


def test_old_lines_are_not_late_because_others_arrive_today() -> None:
    assert watermark([NOW - 5000 * MINUTE], True, NOW) == f"{5000 + 24 * 60} minutes"

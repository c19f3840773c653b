"""Test that the marks of the time axis are readable."""

from __future__ import annotations

import re

import pytest

from verify.chaos.report.drawing.axis import Axis


def texts(seconds: float, level: int) -> list[str]:
    marks = str(Axis(0, round(seconds * 1e9)).marks())
    (found,) = re.findall(rf'<div class="marks" data-level="{level}">(.*?)</div>', marks)
    return re.findall("<b>(.*?)</b>", found)


@pytest.mark.parametrize(
    ("seconds", "level", "first"),
    [
        (30, 0, ["0 s", "5 s", "10 s"]),
        (30, 2, ["0 s", "0.1 s", "0.2 s"]),
        (609, 0, ["0:00", "1:00", "2:00"]),
        (609, 1, ["0:00", "0:10", "0:20"]),
        (609, 2, ["0:00", "0:02", "0:04"]),
        (20_000, 0, ["0:00", "50:00", "100:00"]),
    ],
)
def test_marks_are_round_and_in_minutes_for_long_runs(seconds: float, level: int, first: list[str]) -> None:
    assert texts(seconds, level)[:3] == first

"""The conditions of a run, one by one, and the last line."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tools.demo.report import plot, write_json
from tools.demo.verdict import Audit, Failover, Figures, Input, Stream


def good() -> Figures:
    """Return a run in which all conditions hold. The stream reports ten lines as late."""
    stream = Stream(1, excluded=10, plain=990, counted=980, late=10, missing=10, ended=True)
    stream.batches_before, stream.batches_during, stream.batches_after = 3, 2, 1
    return Figures(
        Input(lines=1000, sources=2),
        Failover(2, 1, [0, 3], 812, 16, gap_s=0.4321, gaps_s={0: 0.4321, 3: 0.3}, in_sync_again_s=4.2),
        Audit(acknowledged=1000, read=1000, by_spark=True),
        stream,
    )


def test_run_in_which_all_conditions_hold_has_no_failures() -> None:
    assert good().failures() == []
    assert good().verdict() == "verdict: 1000 acknowledged, 1000 read, 0 lost, 0 doubled; failover gap 0.432 s"


@pytest.mark.parametrize(
    ("part", "changes", "said"),
    [
        ("failover", {"acks_in_second_before": 199}, "the kill could not bite: 199 acknowledgements"),
        ("failover", {"unacknowledged": 0}, "no record of the victim's partitions was unacknowledged"),
        ("failover", {"unreached": [3], "gap_s": None}, "not all of the victim's partitions got a record after it"),
        ("failover", {"gap_s": None}, "not all of the victim's partitions acknowledged again"),
        ("failover", {"victim": None}, "no broker was killed"),
        ("failover", {"in_sync_again_s": None}, "did not come back in sync"),
        ("audit", {"read": 999}, "1000, 1000, 999"),
        ("audit", {"acknowledged": 999}, "1000, 999, 1000"),
        ("audit", {"lost": 1}, "1 records lost"),
        ("audit", {"doubled": 2}, "2 records doubled"),
        ("audit", {"altered": 1}, "1 records altered"),
        ("audit", {"misplaced": 2}, "2 records misplaced"),
        ("audit", {"foreign": 1}, "1 records foreign"),
        ("audit", {"by_spark": False}, "the audit did not run"),
        ("stream", {"missing": 11}, "the stream's counts are wrong"),
        ("stream", {"surplus": 1}, "the stream's counts are wrong"),
        ("stream", {"late": 9}, "the stream's counts are wrong"),
        ("stream", {"plain": 991}, "the stream's counts are wrong"),
        ("stream", {"excluded": 0}, "the chosen time excluded no record"),
        ("stream", {"batches_before": 0}, "no progress before the failover"),
        ("stream", {"batches_during": 0}, "no progress during the failover"),
        ("stream", {"batches_after": 0}, "no progress after the failover"),
        ("stream", {"failed_tasks": 1}, "1 Spark tasks failed"),
        ("stream", {"ended": False}, "the stream did not end"),
        ("input", {"lines": 1001}, "1001, 1000, 1000"),
    ],
)
def test_each_failed_condition_is_named(part: str, changes: dict[str, Any], said: str) -> None:
    figures = good()
    for name, value in changes.items():
        assert hasattr(getattr(figures, part), name)
        setattr(getattr(figures, part), name, value)
    failures = figures.failures()
    assert len(failures) == 1
    assert said in failures[0]


def ten_lines(batches: tuple[int, int, int]) -> Figures:
    """Return the best run that an input of ten lines allows."""
    stream = Stream(1, excluded=1, plain=9, counted=9, ended=True)
    stream.batches_before, stream.batches_during, stream.batches_after = batches
    return Figures(
        Input(lines=10, sources=1),
        Failover(2, 1, [0, 3], 5, 2, gap_s=0.4, gaps_s={0: 0.4, 3: 0.3}, in_sync_again_s=4.2),
        Audit(acknowledged=10, read=10, by_spark=True),
        stream,
    )


@pytest.mark.parametrize("batches", list(product((0, 1), repeat=3)))
def test_too_few_lines_are_the_only_failure_of_a_short_input(
    batches: tuple[int, int, int],
) -> None:
    figures = ten_lines(batches)
    [failure] = figures.failures()
    assert failure.startswith("the kill could not bite: 5 acknowledgements in the second before it")
    assert failure.endswith("(the input had 10 lines)")
    assert not figures.went_wrong


def test_too_few_lines_do_not_hide_other_failures() -> None:
    figures = ten_lines((1, 1, 0))
    figures.failover.gap_s = None
    assert figures.went_wrong
    figures = ten_lines((1, 1, 0))
    figures.failover.in_sync_again_s = None
    assert figures.went_wrong
    figures = ten_lines((1, 1, 0))
    figures.stream.failed_tasks = 1
    assert figures.went_wrong


def test_unreached_partitions_count_as_too_few_lines() -> None:
    figures = ten_lines((1, 0, 0))
    figures.failover.unreached, figures.failover.gap_s = [3], None
    assert len(figures.failures()) == 1
    assert not figures.went_wrong


def test_empty_input_has_a_void_kill_and_a_verdict() -> None:
    figures = Figures(error="the input holds no line")
    assert any("the kill could not bite" in failure for failure in figures.failures())
    assert figures.verdict() == "verdict: 0 acknowledged, 0 read, 0 lost, 0 doubled; failover gap n/a s"


def test_interrupted_run_has_no_failures_of_later_steps() -> None:
    figures = good()
    figures.interrupted, figures.stream, figures.audit.by_spark = True, Stream(), False
    assert figures.failures() == ["the demo was interrupted"]


def test_json_file_holds_the_figures_and_the_verdict(tmp_path: Path) -> None:
    write_json(tmp_path / "out.json", good())
    printed = json.loads((tmp_path / "out.json").read_text())
    assert printed["ok"] is True
    assert printed["verdict"] == good().verdict()
    assert printed["failover"]["gap_s"] == 0.4321
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def draw(counts: dict[str, dict[int, int]]) -> list[str]:
    return plot(counts).splitlines()


def test_plot_has_a_column_for_each_minute_scaled_to_the_highest() -> None:
    rows = draw({"a": {0: 1, 1: 3, 3: 3}, "b": {1: 3}})
    assert rows[0] == "lines per minute"
    bars = [row.partition("│")[2] for row in rows[1:-2]]
    assert [bar[1] for bar in bars] == ["█"] * len(bars)
    assert [bar[2] for bar in bars] == [" "] * len(bars)
    assert bars[0][0] == " "
    assert bars[-1][0] == "█"
    assert rows[1].startswith("6 ")


def test_plot_of_a_long_time_shares_columns_and_says_so() -> None:
    rows = draw({"a": dict.fromkeys(range(0, 100_000, 10), 1)})
    assert "the busiest of each" in rows[0]
    assert max(map(len, rows)) < 100


def test_plot_without_lines_says_so() -> None:
    assert draw({}) == ["no lines to plot"]

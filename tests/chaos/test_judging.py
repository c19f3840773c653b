"""Test the window of each injection, which limits availability."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.checker.little_log import MS, random_case
from tests.checker.written_run import write_run
from verify.chaos.injections import Injection, Outcome
from verify.chaos.results.judging import judge, window_of
from verify.chaos.runner import LEAST_DURING, MOST_HEALING_S
from verify.checker.invariant import Window

S = 1_000_000_000
BIT = Injection(
    "F1", "leader killed", Outcome.BIT, "epoch 1 → 2", t_inject=S, t_heal=3 * S, t_whole=4 * S, most_gap_ms=3_000
)
STORY = random_case(7)


def test_window_has_the_bounds_of_the_fault() -> None:
    assert LEAST_DURING == 100
    healing_ns = round(MOST_HEALING_S * S)
    assert window_of(BIT) == Window("F1", S, 3 * S, 4 * S, 3_000 * MS, 100, healing_ns)
    assert window_of(replace(BIT, broke="late")) == Window("F1", S, 3 * S, 4 * S, 3_000 * MS, 100, healing_ns, "late")


def test_injected_void_fault_has_a_window() -> None:
    assert window_of(replace(BIT, outcome=Outcome.VOID)) == window_of(BIT)
    assert window_of(Injection("F1", "leader killed", Outcome.VOID, "only 3 records a second before it")) is None
    assert window_of(Injection("F1", "leader killed", Outcome.SKIPPED, "needs root")) is None


def test_repeated_attempt_has_the_window_of_any_other() -> None:
    assert window_of(replace(BIT, outcome=Outcome.AGAIN)) == window_of(BIT)


def test_too_few_replicas_or_a_stopped_run_excuse_missing_operations() -> None:
    for excused in (replace(BIT, leaves_majority=False), replace(BIT, was_cut_short=True)):
        window = window_of(excused)
        assert window is not None
        assert (window.least_operations, window.most_gap_ns) == (0, 3_000 * MS)


def judged(directory: Path, **differing: object) -> list[str]:
    """Return the violations of I19 in a correct history."""
    write_run(directory, STORY)
    (window,) = STORY.ending.windows
    injection = replace(BIT, t_inject=window.injected, t_heal=window.healed, t_whole=window.whole, most_gap_ms=None)
    differing = {"leaves_majority": False, **differing}
    verdict = judge(directory, [replace(injection, **differing)])  # type: ignore[arg-type]
    return [each.says for each in verdict.findings if each.invariant == "I19"]


def test_partitions_that_never_recovered_took_too_long(tmp_path: Path) -> None:
    assert judged(tmp_path / "right") == []
    (says,) = judged(tmp_path / "wrong", t_whole=None)
    assert "until all replicas were in sync again" in says


def test_missing_operations_with_a_majority_are_a_violation(tmp_path: Path) -> None:
    (says,) = judged(tmp_path, t_heal=STORY.ending.windows[0].injected, leaves_majority=True)
    assert "operations succeeded during F1" in says and "at least 100 were required" in says


@pytest.mark.parametrize("outcome", [Outcome.BIT, Outcome.AGAIN, Outcome.VOID])
def test_bound_that_the_fault_found_exceeded_is_a_violation(outcome: Outcome, tmp_path: Path) -> None:
    says = judged(tmp_path, broke="broker 2 took 12 s to stop", outcome=outcome)
    assert says == ["F1: broker 2 took 12 s to stop"]

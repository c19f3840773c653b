"""Test that schedules depend on the seed alone."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.chaos.scenarios import SCENARIOS, row_number, rows_of
from verify.chaos.schedule import Step, schedule

ROWS = ["F1", "F2", "F7", "F20", "F43"]
seeds = st.integers(0, 2**63 - 1)


def first(seed: int, count: int, rows: list[str] = ROWS, kinds: dict[str, int] | None = None) -> list[Step]:
    return list(islice(schedule(seed, rows, {"F1": 1, "F7": 3} if kinds is None else kinds), count))


@given(seeds)
def test_the_same_seed_gives_the_same_schedule(seed: int) -> None:
    assert first(seed, 40) == first(seed, 40)


def test_another_seed_gives_another_schedule() -> None:
    assert len({tuple(first(seed, 10)) for seed in range(50)}) == 50


@given(seeds)
def test_every_row_comes_once_before_any_comes_twice(seed: int) -> None:
    drawn = [step.row for step in first(seed, 3 * len(ROWS))]
    for begin in range(0, len(drawn), len(ROWS)):
        assert sorted(drawn[begin : begin + len(ROWS)]) == sorted(ROWS)


@given(seeds)
def test_kinds_of_a_row_take_turns(seed: int) -> None:
    kinds = [step.kind for step in first(seed, 3 * len(ROWS)) if step.row == "F7"]
    assert sorted(kinds) == [0, 1, 2]


@given(seeds)
def test_consecutive_seeds_begin_with_different_kinds(seed: int) -> None:
    begun = [step.kind for each in range(seed, seed + 3) for step in first(each, len(ROWS)) if step.row == "F7"]
    assert sorted(begun) == [0, 1, 2]


def drawn(steps: list[Step]) -> list[tuple[str, int, float]]:
    return [(step.row, step.rng_seed, step.span) for step in steps]


@given(seeds)
def test_missing_faults_of_a_machine_do_not_change_the_schedule(seed: int) -> None:
    """A row without any fault is scheduled as well, with its own random numbers."""
    one, other = first(seed, 20, kinds={"F1": 1, "F2": 1}), first(seed, 20, kinds={"F1": 1})
    assert [(step.row, step.rng_seed, step.span) for step in one] == [
        (step.row, step.rng_seed, step.span) for step in other
    ]


@given(seeds, st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)).map(sorted))
def test_duration_is_within_the_bounds_of_the_fault(seed: int, bounds: list[int]) -> None:
    least, most = bounds
    for step in first(seed, 10):
        assert least <= step.lasts_ms((least, most)) <= most


def test_schedule_without_rows_is_empty() -> None:
    assert first(1, 10, rows=[]) == []


def test_scenarios_have_only_rows_of_the_catalogue() -> None:
    known = {f"F{row}" for row in range(1, 56)}
    for scenario in SCENARIOS.values():
        assert set(rows_of(scenario, known)) <= known


def test_scenario_all_has_every_row_in_order() -> None:
    assert rows_of(SCENARIOS["all"], {"F10", "F9", "F1"}) == ("F1", "F9", "F10")
    assert row_number("F10") == 10


def test_only_selects_rows_of_the_scenario() -> None:
    assert rows_of(SCENARIOS["rolling"], (), ["F13"]) == ("F13",)
    assert rows_of(SCENARIOS["all"], {"F10", "F9", "F1"}, ["F10", "F1"]) == ("F1", "F10")
    with pytest.raises(ValueError, match="scenario rolling has no row 'F1': it has F11, F13"):
        rows_of(SCENARIOS["rolling"], (), ["F1"])

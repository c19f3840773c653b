"""Test the checker: correct histories have no violation, and each mutation is found."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.checker.little_log import random_case
from tests.checker.mutations import MUTATIONS
from tests.checker.mutations.mutation import Mutation, NothingToSpoil
from verify.checker.checker import INVARIANTS

SEEDS = st.integers(0, 1 << 32)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(0, 300))
def test_correct_history_has_no_violation_and_gives_all_invariants_data(seed: int, steps: int) -> None:
    case = random_case(seed, steps)
    verdict = case.verdict()
    assert verdict.exit_code == 0, str(verdict)
    assert case.found_on_the_way() == set()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_mutated_history_violates_the_expected_invariant(mutation: Mutation, seed: int) -> None:
    rng = random.Random(seed)
    try:
        case = mutation.spoil(random_case(seed, 40), rng)
    except NothingToSpoil:
        reject()  # the test fails if no example has a target for the mutation
    verdict = case.verdict()
    assert verdict.exit_code == 1
    assert mutation.breaks in [row.key for row in verdict.violated], str(verdict)
    for finding in verdict.findings:
        assert finding.says
        assert finding.operations or finding.invariant == "I19", finding
    if mutation.on_the_way:
        assert mutation.breaks in case.found_on_the_way()


def test_every_invariant_is_violated_by_some_mutation() -> None:
    assert {each.breaks for each in MUTATIONS} == {each.key for each in INVARIANTS}
    assert [each.key for each in INVARIANTS] == [f"I{number}" for number in range(1, 24)]

"""Test the summary of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.model import TopicPartition
from verify.chaos.injections import Injection, Outcome
from verify.chaos.results.verdict import BROKEN, KEPT, UNPROVED, RowCount, count_rows, exit_status, shortcomings
from verify.checker.findings import Finding
from verify.checker.verdict import Row, Verdict

KEYS = [f"I{number}" for number in range(1, 23)]


def judged(**differing: tuple[int, int]) -> Verdict:
    """Return a verdict with these observations and violations; the other invariants passed with ten observations."""
    return Verdict([Row(key, key, *differing.get(key, (10, 0))) for key in KEYS], [])


ALL_SEEN = judged()
BIT = Injection("F1", "leader killed", Outcome.BIT, "epoch 1 → 2", t_inject=1)
VOID = Injection("F1", "leader killed", Outcome.VOID, "no effect", t_inject=1)
AGAIN = replace(VOID, outcome=Outcome.AGAIN)
TOO_QUIET = Injection("F2", "follower killed", Outcome.VOID, "only 3 records acknowledged in the second before it")
SKIPPED = Injection("F19", "leader cut off", Outcome.SKIPPED, "needs root")


def test_run_with_all_promises_proved_passes() -> None:
    counts = count_rows(["F1"], [BIT, BIT])
    assert counts == [RowCount("F1", "leader killed", injected=2, bit=2, again=0, void=0, skipped=0)]
    assert shortcomings(counts, ALL_SEEN) == []
    assert exit_status(counts, ALL_SEEN) == KEPT == 0


def test_one_violation_breaks_the_run() -> None:
    counts = count_rows(["F1"], [BIT])
    assert exit_status(counts, judged(I9=(1_000_000, 1))) == BROKEN == 1


def test_violation_takes_precedence_over_shortcomings() -> None:
    counts = count_rows(["F1", "F19"], [VOID, SKIPPED])
    assert exit_status(counts, judged(I1=(1, 1))) == BROKEN


def test_void_fault_proves_nothing_even_if_another_of_its_row_bit() -> None:
    counts = count_rows(["F1"], [BIT, VOID])
    assert (counts[0].injected, counts[0].bit, counts[0].void) == (2, 1, 1)
    assert exit_status(counts, ALL_SEEN) == UNPROVED == 3


@pytest.mark.parametrize("attempts", [2, 3])
def test_fault_that_bites_at_a_repeat_passes(attempts: int) -> None:
    counts = count_rows(["F1"], [*[AGAIN] * (attempts - 1), BIT])
    assert counts == [RowCount("F1", "leader killed", attempts, bit=1, again=attempts - 1, void=0, skipped=0)]
    assert shortcomings(counts, ALL_SEEN) == []
    assert exit_status(counts, ALL_SEEN) == KEPT


def test_fault_that_never_bites_stays_a_shortcoming() -> None:
    counts = count_rows(["F1"], [AGAIN, AGAIN, VOID])
    assert counts == [RowCount("F1", "leader killed", injected=3, bit=0, again=2, void=1, skipped=0)]
    assert shortcomings(counts, ALL_SEEN) == ["void, so these faults prove nothing: F1"]
    assert exit_status(counts, ALL_SEEN) == UNPROVED


@pytest.mark.parametrize(
    "following",
    [[], [replace(BIT, row="F2")], [replace(BIT, name="leader paused")], [replace(BIT, row="F2"), BIT]],
    ids=["no step", "another row", "another kind", "another row between"],
)
def test_repeated_attempt_without_its_repeat_is_void(following: list[Injection]) -> None:
    (count,) = count_rows(["F1"], [AGAIN, *following])
    assert (count.again, count.void) == (0, 1)
    assert exit_status([count], ALL_SEEN) == UNPROVED


def test_violation_takes_precedence_over_a_repeat_that_bites() -> None:
    assert exit_status(count_rows(["F1"], [AGAIN, BIT]), judged(I19=(10, 1))) == BROKEN
    assert exit_status(count_rows(["F1"], [AGAIN, AGAIN, VOID]), judged(I19=(10, 1))) == BROKEN


def test_fault_without_load_is_void_and_not_injected() -> None:
    counts = count_rows(["F2"], [TOO_QUIET])
    assert (counts[0].injected, counts[0].void) == (0, 1)
    assert shortcomings(counts, ALL_SEEN) == ["void, so these faults prove nothing: F2"]


def test_skipped_or_unreached_rows_have_not_passed() -> None:
    counts = count_rows(["F19", "F1", "F3"], [SKIPPED, BIT])
    assert [count.row for count in counts] == ["F1", "F3", "F19"]
    assert shortcomings(counts, ALL_SEEN) == [
        "skipped, because they cannot be injected here: F19",
        "not reached: F3",
    ]
    assert exit_status(counts, ALL_SEEN) == UNPROVED


def test_skipped_kind_is_reported_if_others_of_its_row_bit() -> None:
    counts = count_rows(["F1"], [replace(SKIPPED, row="F1"), BIT])
    assert shortcomings(counts, ALL_SEEN) == ["skipped, because they cannot be injected here: some kinds of F1"]
    assert exit_status(counts, ALL_SEEN) == UNPROVED


def test_invariant_without_observations_has_not_passed() -> None:
    seen = judged(I17=(0, 0), I18=(0, 0))
    counts = count_rows(["F1"], [BIT])
    assert shortcomings(counts, seen) == ["without data, so these invariants have not passed: I17, I18"]
    assert exit_status(counts, seen) == UNPROVED


def test_partition_without_its_final_log_has_not_passed() -> None:
    counts, seen = count_rows(["F1"], [BIT]), replace(ALL_SEEN, unread=[TopicPartition("t", 1)])
    assert shortcomings(counts, seen) == [
        "without all final logs, so the final state of these partitions is unknown: t-1"
    ]
    assert exit_status(counts, seen) == UNPROVED


def test_unreadable_histories_prove_nothing() -> None:
    assert exit_status(count_rows(["F1"], [BIT]), None) == UNPROVED


def test_run_with_its_own_failure_proves_nothing() -> None:
    counts = count_rows(["F1"], [BIT])
    assert exit_status(counts, ALL_SEEN, ["clients-0 ended with status 1"]) == UNPROVED
    assert shortcomings(counts, ALL_SEEN, ["clients-0 ended with status 1"]) == ["clients-0 ended with status 1"]


def test_lines_count_the_violations_that_are_not_shown() -> None:
    """The checker describes at most a hundred violations of an invariant."""
    findings = [Finding("I1", None, number, f"violation {number}", []) for number in range(100)]
    verdict = Verdict([Row("I1", "order", 500, 250)], findings)
    for most, rest in ((3, 247), (100, 150), (200, 150)):
        lines = list(verdict.lines(most_findings=most))
        assert lines[-1] == f"I1: and {rest} more"
        assert sum("violation " in line for line in lines) == min(most, 100)
    assert "more" not in list(Verdict([Row("I1", "order", 500, 2)], findings[:2]).lines(most_findings=200))[-1]

"""Summarize a run: counts per row of the catalogue, shortcomings, and the exit status. This module does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from verify.chaos.injections import Injection, Outcome
from verify.chaos.scenarios import row_number
from verify.checker.verdict import Verdict

#: The exit status of a run: all promises proved and kept, a promise broken, or something not proved.
KEPT, BROKEN, UNPROVED = 0, 1, 3


@dataclass(frozen=True, slots=True)
class RowCount:
    """The counts of one row.

    name      the description of the row's first recorded step; empty: none
    injected  the number of injections that began; each of them is `bit`, `again` or `void`
    again     the number of injections that the cluster did not notice and that another attempt followed
    void      the number of steps that proved nothing, also of those that were not injected
    skipped   the number of fault kinds that cannot be injected here; 1 for a row without an implemented fault
    """

    row: str
    name: str
    injected: int
    bit: int
    again: int
    void: int
    skipped: int


def count_rows(asked: Sequence[str], injections: Sequence[Injection]) -> list[RowCount]:
    """Return the counts of each requested row, ordered as in the catalogue of faults.

    A row that was not reached has counts of 0. `injections` must be in the order of the run.
    """
    counts, judged = [], judged_attempts(injections)
    for row in sorted(asked, key=row_number):
        ours = [injection for injection in judged if injection.row == row]
        outcomes = [injection.outcome for injection in ours]
        counts.append(
            RowCount(
                row,
                next((injection.name for injection in ours if injection.name), ""),
                sum(injection.t_inject is not None for injection in ours),
                outcomes.count(Outcome.BIT),
                outcomes.count(Outcome.AGAIN),
                outcomes.count(Outcome.VOID),
                outcomes.count(Outcome.SKIPPED),
            )
        )
    return counts


def judged_attempts(injections: Sequence[Injection]) -> list[Injection]:
    """Return the injections. A repeated attempt is void if its repeat is missing, because then no attempt decides.

    The repeat of an attempt is the next injection, of the same row and with the same name. A run that is stopped or
    killed before the repeat leaves none.
    """
    judged = []
    for injection, following in zip_longest(injections, injections[1:]):
        is_repeated = following is not None and (following.row, following.name) == (injection.row, injection.name)
        is_void = injection.outcome is Outcome.AGAIN and not is_repeated
        judged.append(replace(injection, outcome=Outcome.VOID) if is_void else injection)
    return judged


def repeated(counts: Sequence[RowCount]) -> list[str]:
    """Return the rows with an attempt that the cluster did not notice and that another attempt followed."""
    return [count.row for count in counts if count.again]


def shortcomings(counts: Sequence[RowCount], verdict: Verdict | None, troubles: Sequence[str] = ()) -> list[str]:
    """Return why the run has not proved what was requested: `troubles` first, then rows with void steps, with skipped
    kinds and without any step, and invariants or partitions without data. A verdict of None is a reason too.

    Violations are no shortcomings. `troubles` are the failures of the run itself.
    """
    void = [count.row for count in counts if count.void]
    skipped = [_skipped(count) for count in counts if count.skipped]
    unreached = [count.row for count in counts if not (count.injected or count.void or count.skipped)]
    found = list(troubles)
    if void:
        found.append(f"void, so these faults prove nothing: {', '.join(void)}")
    if skipped:
        found.append(f"skipped, because they cannot be injected here: {', '.join(skipped)}")
    if unreached:
        found.append(f"not reached: {', '.join(unreached)}")
    if verdict is None:
        found.append("the histories could not be checked")
        return found
    if blind := [row.key for row in verdict.without_data]:
        found.append(f"without data, so these invariants have not passed: {', '.join(blind)}")
    if verdict.unread:
        unread = ", ".join(map(str, verdict.unread))
        found.append(f"without all final logs, so the final state of these partitions is unknown: {unread}")
    return found


def _skipped(count: RowCount) -> str:
    return f"some kinds of {count.row}" if count.injected or count.void else count.row


def exit_status(counts: Sequence[RowCount], verdict: Verdict | None, troubles: Sequence[str] = ()) -> int:
    """Return BROKEN if the verdict has a violation, else UNPROVED if there is any shortcoming, else KEPT."""
    if verdict is not None and verdict.violated:
        return BROKEN
    return UNPROVED if shortcomings(counts, verdict, troubles) else KEPT

"""What a run comes to: counts per row and invariant, and the exit status. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.chaos.injections import Injection, Outcome
from tidelog.chaos.scenarios import row_number

#: The run's exit status: everything was seen and kept; a promise was broken; something is not proved.
KEPT, BROKEN, UNPROVED = 0, 1, 3

INVARIANTS: Final = tuple(f"I{number}" for number in range(1, 23))


@dataclass(frozen=True, slots=True)
class RowCount:
    """What became of one row's injections: `injected` are those that began, and each is `bit` or `void`."""

    row: str
    name: str
    injected: int
    bit: int
    void: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Judged:
    """One invariant: how much was looked at, how much of it was wrong; of some of that a sentence and its proof."""

    observations: int
    violations: int
    findings: Sequence[str] = ()


def count_rows(asked: Sequence[str], injections: Sequence[Injection]) -> list[RowCount]:
    """Each row that was asked for, in the catalogue's order, also those that were not reached."""
    counts = []
    for row in sorted(asked, key=row_number):
        ours = [injection for injection in injections if injection.row == row]
        outcomes = [injection.outcome for injection in ours]
        counts.append(
            RowCount(
                row,
                next((injection.name for injection in ours if injection.name), ""),
                sum(injection.t_inject is not None for injection in ours),
                outcomes.count(Outcome.BIT),
                outcomes.count(Outcome.VOID),
                outcomes.count(Outcome.SKIPPED),
            )
        )
    return counts


def shortcomings(counts: Sequence[RowCount], invariants: Mapping[str, Judged] | None) -> list[str]:
    """Why the run has not proved what it was asked to, one line each; violations are no shortcomings."""
    void = [count.row for count in counts if count.void]
    skipped = [count.row for count in counts if count.skipped]
    unreached = [count.row for count in counts if not (count.injected or count.void or count.skipped)]
    found = []
    if void:
        found.append(f"void, so nothing is proved by them: {', '.join(void)}")
    if skipped:
        found.append(f"skipped, since they cannot be injected here: {', '.join(skipped)}")
    if unreached:
        found.append(f"not reached: {', '.join(unreached)}")
    if invariants is None:
        found.append("the histories could not be judged")
    elif blind := [name for name in INVARIANTS if not ((judged := invariants.get(name)) and judged.observations)]:
        found.append(f"without data, so they have not passed: {', '.join(blind)}")
    return found


def exit_status(counts: Sequence[RowCount], invariants: Mapping[str, Judged] | None) -> int:
    """BROKEN where there is any violation, else UNPROVED where anything is missing, else KEPT."""
    if any(judged.violations for judged in (invariants or {}).values()):
        return BROKEN
    return UNPROVED if shortcomings(counts, invariants) else KEPT

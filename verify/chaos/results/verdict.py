"""What a run comes to: counts per row of the catalogue, what was not proved, and the exit status. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verify.chaos.injections import Injection, Outcome
from verify.chaos.scenarios import row_number
from verify.checker.verdict import Verdict

#: The run's exit status: everything was seen and kept; a promise was broken; something is not proved.
KEPT, BROKEN, UNPROVED = 0, 1, 3


@dataclass(frozen=True, slots=True)
class RowCount:
    """What became of one row's injections: `injected` are those that began, and each is `bit` or `void`."""

    row: str
    name: str
    injected: int
    bit: int
    void: int
    skipped: int


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


def shortcomings(counts: Sequence[RowCount], verdict: Verdict | None, troubles: Sequence[str] = ()) -> list[str]:
    """Why the run has not proved what it was asked to; violations are no shortcomings. `troubles` are its own."""
    void = [count.row for count in counts if count.void]
    skipped = [_skipped(count) for count in counts if count.skipped]
    unreached = [count.row for count in counts if not (count.injected or count.void or count.skipped)]
    found = list(troubles)
    if void:
        found.append(f"void, so nothing is proved by them: {', '.join(void)}")
    if skipped:
        found.append(f"skipped, since they cannot be injected here: {', '.join(skipped)}")
    if unreached:
        found.append(f"not reached: {', '.join(unreached)}")
    if verdict is None:
        found.append("the histories could not be judged")
        return found
    if blind := [row.key for row in verdict.without_data]:
        found.append(f"without data, so they have not passed: {', '.join(blind)}")
    if verdict.unread:
        found.append(f"without all of their final logs, so their end is unknown: {', '.join(map(str, verdict.unread))}")
    return found


def _skipped(count: RowCount) -> str:
    return f"some kinds of {count.row}" if count.injected or count.void else count.row


def exit_status(counts: Sequence[RowCount], verdict: Verdict | None, troubles: Sequence[str] = ()) -> int:
    """BROKEN where there is any violation, else UNPROVED where anything is missing, else KEPT."""
    if verdict is not None and verdict.violated:
        return BROKEN
    return UNPROVED if shortcomings(counts, verdict, troubles) else KEPT

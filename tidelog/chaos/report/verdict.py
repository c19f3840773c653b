"""The verdict on a run as the report and the terminal show it, and what of it makes a run fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.chaos.injections import Injection


class Violation(NamedTuple):
    """One violation: where, what is wrong, and the operations that prove it. `t` 0: it has no time."""

    where: str
    t: int
    says: str
    operations: Sequence[str]


class Judged(NamedTuple):
    """One invariant. `violations` may be more than are `told`."""

    invariant: str
    observations: int
    violations: int
    told: Sequence[Violation] = ()

    @property
    def word(self) -> str:
        """ "kept", "broken" or "no data": an invariant that saw nothing has not passed."""
        return "broken" if self.violations else "kept" if self.observations else "no data"


class RowOutcomes(NamedTuple):
    """What became of the faults of one row of the catalogue."""

    row: str
    name: str
    injected: int
    bit: int
    void: int
    skipped: int


def outcomes_by_row(faults: Sequence[Injection]) -> list[RowOutcomes]:
    """In the catalogue's order."""
    rows: dict[tuple[str, str], Counter[str]] = {}
    for fault in faults:
        counts = rows.setdefault((fault.row, fault.name), Counter())
        counts[fault.outcome] += 1
        counts["injected"] += fault.t_inject is not None
    ordered = sorted(rows, key=lambda row: (int("0" + "".join(filter(str.isdecimal, row[0]))), row))
    return [RowOutcomes(*row, *(rows[row][word] for word in ("injected", "bit", "void", "skipped"))) for row in ordered]


def headline(judged: Sequence[Judged] | None, faults: Sequence[Injection]) -> tuple[bool | None, str, list[str]]:
    """Whether the run passed (None: that cannot be said), in one sentence, and what stands against it."""
    if judged is None:
        return None, "There is no verdict: the run ended before its histories were judged.", []
    broken = [each for each in judged if each.word == "broken"]
    blind = [each.invariant for each in judged if each.word == "no data"]
    void = [fault for fault in faults if fault.outcome == "void"]
    skipped = [fault for fault in faults if fault.outcome == "skipped"]
    bit = sum(fault.outcome == "bit" for fault in faults)
    against = [f"{each.invariant} is broken: {_count(each.violations, 'violation')}." for each in broken]
    if blind:
        against.append(f"Nothing was seen of {', '.join(blind)}: that has not passed.")
    if void:
        against.append(f"{_count(len(void), 'fault')} had no effect, and proved nothing: {_rows(void)}.")
    if skipped:
        against.append(f"{_count(len(skipped), 'fault')} could not be injected here: {_rows(skipped)}.")
    hits = f"{_count(bit, 'fault')} hit the cluster"
    if broken:
        promises = "a promise was" if len(broken) == 1 else f"{len(broken)} promises were"
        return False, f"Failed: {promises} broken ({hits}).", against
    if against:
        return None, f"Not proved: {hits}, no promise was seen broken, but something is missing.", against
    return True, f"Passed: {hits}, and every promise was kept.", []


def _rows(faults: Sequence[Injection]) -> str:
    return ", ".join(dict.fromkeys(fault.row for fault in faults))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

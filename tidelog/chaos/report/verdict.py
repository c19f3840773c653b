"""The verdict on a run as the report and the terminal show it, and what of it makes a run fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.chaos.verdict import RowCount


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


def headline(
    judged: Sequence[Judged] | None, counts: Sequence[RowCount], troubles: Sequence[str] = ()
) -> tuple[bool | None, str, list[str]]:
    """Whether the run passed (None: that cannot be said), in one sentence, and what stands against it.

    `troubles` are the run's own: what it could not do, or not read.
    """
    bit = sum(count.bit for count in counts)
    hits = f"{_count(bit, 'fault')} hit the cluster"
    broken = [each for each in judged or () if each.word == "broken"]
    against = [f"{each.invariant} is broken: {_count(each.violations, 'violation')}." for each in broken]
    against += troubles
    if blind := [each.invariant for each in judged or () if each.word == "no data"]:
        against.append(f"Nothing was seen of {', '.join(blind)}: that has not passed.")
    if void := [count for count in counts if count.void]:
        number = _count(sum(count.void for count in void), "fault")
        against.append(f"{number} had no effect, and proved nothing: {_rows(void)}.")
    if skipped := [count for count in counts if count.skipped]:
        number = _count(sum(count.skipped for count in skipped), "fault")
        against.append(f"{number} could not be injected here: {_rows(skipped)}.")
    if unreached := [count for count in counts if not (count.injected or count.void or count.skipped)]:
        against.append(f"There was no time for {_rows(unreached)}.")
    if broken:
        promises = "a promise was" if len(broken) == 1 else f"{len(broken)} promises were"
        return False, f"Failed: {promises} broken ({hits}).", against
    if judged is None:
        return None, "There is no verdict: the run ended before its histories were judged.", against
    if against:
        return None, f"Not proved: {hits}, no promise was seen broken, but something is missing.", against
    return True, f"Passed: {hits}, and every promise was kept.", []


def _rows(counts: Sequence[RowCount]) -> str:
    return ", ".join(count.row for count in counts)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

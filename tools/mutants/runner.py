"""Bugs and those who are to find them, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tools.mutants.detectors import FINDERS, Bounds, CannotTell, Finding
from tools.mutants.mutant import CHAOS, SIMULATOR, Mutant, Recorded
from tools.mutants.worktree import NotApplicable, Trial

#: How those are started whom a patch does not name.
DEFAULT_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    SIMULATOR: ("--seconds", "60"),
    CHAOS: ("--scenario", "leader-kill"),
}

#: Told which bug and who looks for it, and what he said last.
Follow = Callable[[Mutant, str, str], object]


class Verdict(StrEnum):
    """What came of one bug and one finder."""

    FOUND = "found"
    NOT_FOUND = "NOT FOUND"
    DOES_NOT_FIT = "DOES NOT FIT"
    RED_WITHOUT_IT = "RED WITHOUT IT"
    CANNOT_TELL = "CANNOT TELL"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one finder said to one bug, started with these arguments."""

    mutant: Mutant
    by: str
    verdict: Verdict
    finding: Finding
    arguments: tuple[str, ...] = ()

    @property
    def expected(self) -> bool:
        """Whether the patch names him, so that he has to find it."""
        return self.by in self.mutant.found_by

    @property
    def recorded(self) -> Recorded | None:
        """What the patch may say of it; None: nothing was learned, or it contradicts what the patch asks for."""
        finding = self.finding
        if self.verdict is Verdict.FOUND:
            return Recorded(self.by, finding.runs, finding.seconds, finding.said)
        if self.verdict is Verdict.NOT_FOUND and not self.expected and finding.runs:
            return Recorded(self.by, finding.runs, finding.seconds)
        return None


def hunt(
    trial: Trial,
    chosen: Sequence[Mutant],
    by: Sequence[str],
    bounds: Bounds,
    *,
    try_all: bool = False,
    follow: Follow = lambda mutant, by, line: None,
) -> Iterator[Outcome]:
    """Patches that do not fit come first, before anybody waits for the others.

    With `try_all` each of `by` looks for each bug, also where its patch does not name him.
    """
    complaints = {mutant.name: trial.complaint(mutant) for mutant in chosen}
    for mutant in chosen:
        if said := complaints[mutant.name]:
            yield Outcome(mutant, by[0], Verdict.DOES_NOT_FIT, Finding(said, 0, 0.0))
    for mutant, name in searches(chosen, by, try_all=try_all):
        if not complaints[mutant.name]:
            yield _tried(trial, mutant, name, bounds, follow)


def searches(chosen: Sequence[Mutant], by: Sequence[str], *, try_all: bool = False) -> list[tuple[Mutant, str]]:
    """Which bug is looked for by whom, in this order."""
    return [(mutant, name) for mutant in chosen for name in by if try_all or name in mutant.found_by]


def passed(chosen: Sequence[Mutant], outcomes: Sequence[Outcome]) -> bool:
    """Each bug was found by one at least, and by all who had to."""
    found = {each.mutant.name for each in outcomes if each.verdict is Verdict.FOUND}
    failed = [
        each
        for each in outcomes
        if each.verdict is Verdict.DOES_NOT_FIT or (each.expected and each.verdict is not Verdict.FOUND)
    ]
    return not failed and all(mutant.name in found for mutant in chosen)


def _tried(trial: Trial, mutant: Mutant, by: str, bounds: Bounds, follow: Follow) -> Outcome:
    finder, arguments = FINDERS[by], mutant.found_by.get(by, DEFAULT_ARGUMENTS.get(by, ()))

    def watch(line: str) -> None:
        follow(mutant, by, line)

    try:
        with trial.planted(mutant):
            finding = finder.look(trial.tree, arguments, bounds, watch)
        if not finding.said:
            return Outcome(mutant, by, Verdict.NOT_FOUND, finding, arguments)
        # What it finds must be the bug's doing.
        without = finder.repeat(trial.tree, finding, bounds, watch)
    except NotApplicable as complaint:
        return Outcome(mutant, by, Verdict.DOES_NOT_FIT, Finding(str(complaint), 0, 0.0))
    except CannotTell as complaint:
        return Outcome(mutant, by, Verdict.CANNOT_TELL, Finding(str(complaint), 0, 0.0), arguments)
    if without.said:
        red = replace(without, said=f"{' '.join(finding.again)}: {without.said}")
        return Outcome(mutant, by, Verdict.RED_WITHOUT_IT, red, arguments)
    return Outcome(mutant, by, Verdict.FOUND, finding, arguments)

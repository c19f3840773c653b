"""Searches for each planted bug with each detector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tools.mutants.detectors import DETECTORS, Bounds, DetectorFailed, Finding
from tools.mutants.mutant import CHAOS, SIMULATOR, Mutant, Recorded
from tools.mutants.worktree import NotApplicable, Worktree

#: The arguments of detectors that a patch does not name.
DEFAULT_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    SIMULATOR: ("--seconds", "60"),
    CHAOS: ("--scenario", "leader-kill"),
}

#: Called with the bug, the detector's name, and the last line of its output.
Follow = Callable[[Mutant, str, str], object]


class Verdict(StrEnum):
    """The result of one search.

    NOT_FOUND        the detector found nothing
    DOES_NOT_FIT     the patch does not apply
    RED_WITHOUT_IT   the run that found the bug finds something without the bug, too
    CANNOT_TELL      the detector failed
    """

    FOUND = "found"
    NOT_FOUND = "NOT FOUND"
    DOES_NOT_FIT = "DOES NOT FIT"
    RED_WITHOUT_IT = "RED WITHOUT IT"
    CANNOT_TELL = "CANNOT TELL"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one detector for one bug, with the detector's arguments."""

    mutant: Mutant
    by: str
    verdict: Verdict
    finding: Finding
    arguments: tuple[str, ...] = ()

    @property
    def expected(self) -> bool:
        """Return whether the patch names the detector, so that it must find the bug."""
        return self.by in self.mutant.found_by

    @property
    def recorded(self) -> Recorded | None:
        """Return the outcome to record in the patch, or None.

        None means that the search proved nothing, or that it missed a bug that the patch says it finds.
        """
        finding = self.finding
        if self.verdict is Verdict.FOUND:
            return Recorded(self.by, finding.runs, finding.seconds, finding.said)
        if self.verdict is Verdict.NOT_FOUND and not self.expected and finding.runs:
            return Recorded(self.by, finding.runs, finding.seconds)
        return None


def run_searches(
    worktree: Worktree,
    chosen: Sequence[Mutant],
    by: Sequence[str],
    bounds: Bounds,
    *,
    try_all: bool = False,
    follow: Follow = lambda mutant, by, line: None,
) -> Iterator[Outcome]:
    """Search for each bug with each detector in `by` that its patch names, and yield each outcome.

    A finding counts only if the same run finds nothing without the bug. Patches that do not apply come first, before
    the slow searches. With `try_all`, patches need not name a detector.
    """
    complaints = {mutant.name: worktree.complaint(mutant) for mutant in chosen}
    for mutant in chosen:
        if said := complaints[mutant.name]:
            yield Outcome(mutant, by[0], Verdict.DOES_NOT_FIT, Finding(said, 0, 0.0))
    for mutant, name in searches(chosen, by, try_all=try_all):
        if not complaints[mutant.name]:
            yield _search(worktree, mutant, name, bounds, follow)


def searches(chosen: Sequence[Mutant], by: Sequence[str], *, try_all: bool = False) -> list[tuple[Mutant, str]]:
    """Return the pairs of bug and detector for which there is a search, in the order of the searches."""
    return [(mutant, name) for mutant in chosen for name in by if try_all or name in mutant.found_by]


def passed(chosen: Sequence[Mutant], outcomes: Sequence[Outcome]) -> bool:
    """Return whether each bug was found by at least one detector, and by all detectors that its patch names."""
    found = {each.mutant.name for each in outcomes if each.verdict is Verdict.FOUND}
    failed = [
        each
        for each in outcomes
        if each.verdict is Verdict.DOES_NOT_FIT or (each.expected and each.verdict is not Verdict.FOUND)
    ]
    return not failed and all(mutant.name in found for mutant in chosen)


def _search(worktree: Worktree, mutant: Mutant, by: str, bounds: Bounds, follow: Follow) -> Outcome:
    finder, arguments = DETECTORS[by], mutant.found_by.get(by, DEFAULT_ARGUMENTS.get(by, ()))

    def watch(line: str) -> None:
        follow(mutant, by, line)

    try:
        with worktree.planted(mutant):
            finding = finder.search(worktree.tree, arguments, bounds, watch)
        if not finding.said:
            return Outcome(mutant, by, Verdict.NOT_FOUND, finding, arguments)
        # The finding counts only if the same run finds nothing without the bug.
        without = finder.repeat(worktree.tree, finding, bounds, watch)
    except NotApplicable as complaint:
        return Outcome(mutant, by, Verdict.DOES_NOT_FIT, Finding(str(complaint), 0, 0.0))
    except DetectorFailed as complaint:
        return Outcome(mutant, by, Verdict.CANNOT_TELL, Finding(str(complaint), 0, 0.0), arguments)
    if without.said:
        red = replace(without, said=f"{' '.join(finding.again)}: {without.said}")
        return Outcome(mutant, by, Verdict.RED_WITHOUT_IT, red, arguments)
    return Outcome(mutant, by, Verdict.FOUND, finding, arguments)

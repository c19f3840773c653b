"""Searches a tree for bugs in three ways: the test suite, the simulator and chaos."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tools.mutants.mutant import CHAOS, SIMULATOR, SUITE
from tools.mutants.subprocess_runner import Ended, Watch, run_python

#: The most runs of a search.
MOST_RUNS = 100
_LONGEST_S = 600.0
_LONGEST_CHAOS_S = 3600.0
#: The time for cleaning up. Chaos undoes its faults.
_GRACE_S = 10.0
_CHAOS_GRACE_S = 120.0
_LAST_OUTPUT_CHARS = 2000
#: The exit status of pytest if some tests failed.
_TESTS_FAILED = 1
#: The simulator's lines for a failing seed and for the number of finished seeds, and its exit status if an invariant
#: had no data.
_FAILED = re.compile(r"seed (\d+) failed: (.*)")
_DONE = re.compile(r"(\d+) of \d+ seeds")
_WITHOUT_DATA = 3


class DetectorFailed(Exception):
    """A detector ended in a way that says nothing about the tree, for example by wrong arguments."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most runs and the most seconds of a search. `longest_s` None stands for the detector's own limit."""

    runs: int = MOST_RUNS
    longest_s: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a search for a planted bug.

    said      the test or the verdict that shows the bug; "" if the search found nothing
    runs      the number of runs until then
    seconds   CPU time for tests and the simulator, wall-clock time for chaos
    again     the arguments of the single run that found it, for `Detector.repeat`
    """

    said: str
    runs: int
    seconds: float
    again: tuple[str, ...] = ()


class Detector(Protocol):
    """A way to search a tree for a bug, with more arguments for the detector's program.

    Methods raise DetectorFailed. `watch` is called with the last line of output from time to time.
    """

    def search(self, tree: Path, arguments: Sequence[str], bounds: Bounds, watch: Watch) -> Finding: ...

    def repeat(self, tree: Path, finding: Finding, bounds: Bounds, watch: Watch) -> Finding:
        """Run once more the single run that found the bug, and return what it finds in this tree."""
        ...


class Suite:
    """Runs the given tests once, until the first failure. A test that does not end in time is a finding, too."""

    def search(self, tree: Path, arguments: Sequence[str], bounds: Bounds, watch: Watch) -> Finding:
        options = ("-x", "-q", "--tb=no", "--no-header", "-m", "not slow", "-p", "no:cacheprovider")
        longest_s = bounds.longest_s or _LONGEST_S
        ended = run_python(
            tree,
            ["-m", "pytest", *options, *arguments],
            longest_s=longest_s,
            grace_s=_GRACE_S,
            watch=watch,
            more={"TIDELOG_TESTS": "no shrinking"},
        )
        if ended.status is None:  # a test that never ends has found the bug too
            return Finding(f"not done after {longest_s:g} s", 1, ended.busy_s, tuple(arguments))
        if ended.status == 0:
            return Finding("", 1, ended.busy_s)
        lines = (line.partition(" - ")[0] for line in ended.stdout.splitlines())
        red = [line.partition(" ")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))]
        if not red or ended.status != _TESTS_FAILED:
            raise DetectorFailed(f"pytest ended with {ended.status}: {_last_output(ended)}")
        return Finding(red[0], 1, ended.busy_s, (red[0],))

    def repeat(self, tree: Path, finding: Finding, bounds: Bounds, watch: Watch) -> Finding:
        return self.search(tree, finding.again, bounds, watch)


@dataclass(frozen=True, slots=True)
class Simulator:
    """Runs all seeds in one process until the first failure, at which the simulator ends with 1 and names the seed.

    A search that takes too long finds nothing.
    """

    module: str = "verify.simulation"

    def search(self, tree: Path, arguments: Sequence[str], bounds: Bounds, watch: Watch) -> Finding:
        ended = self._run(tree, ("--seeds", str(bounds.runs), *arguments), bounds, watch)
        failed = _FAILED.search(ended.stdout)
        counts = _DONE.findall(ended.stdout, 0, failed.start() if failed else len(ended.stdout))
        runs = int(counts[-1]) if counts else 0
        # A search that was too slow for all seeds proves nothing. The simulator itself limits waits.
        if ended.status != 1:
            return Finding("", runs, ended.busy_s)
        if failed is None:
            raise DetectorFailed(f"the simulator ended with 1 and names no seed: {_last_output(ended)}")
        # Not every count is printed, but the count with the failing seed is.
        summary = _DONE.search(ended.stdout, failed.end())
        runs = int(summary[1]) if summary else runs + 1
        return Finding(failed[2].strip(), runs, ended.busy_s, ("--seeds", "1", "--seed", failed[1], *arguments))

    def repeat(self, tree: Path, finding: Finding, bounds: Bounds, watch: Watch) -> Finding:
        ended = self._run(tree, finding.again, bounds, watch)
        if ended.status != 1:
            return Finding("", 1, ended.busy_s)
        failed = _FAILED.search(ended.stdout)
        return Finding(failed[2].strip() if failed else _violation(ended), 1, ended.busy_s)

    def _run(self, tree: Path, arguments: Sequence[str], bounds: Bounds, watch: Watch) -> Ended:
        ended = run_python(
            tree,
            ["-P", "-m", self.module, *arguments],
            longest_s=bounds.longest_s or _LONGEST_S,
            grace_s=_GRACE_S,
            watch=watch,
        )
        if ended.status not in (None, 0, 1, _WITHOUT_DATA):
            raise DetectorFailed(f"the simulator ended with {ended.status}: {_last_output(ended)}")
        return ended


@dataclass(frozen=True, slots=True)
class Seeds:
    """Runs a program with the seeds 1, 2, … in turn until it ends with 1, because a promise was broken.

    A program that does not end in time is a finding, too.

    module   the module, and its first arguments
    quiet    exit statuses that mean that no promise was broken
    """

    module: str
    quiet: Sequence[int] = (0,)
    longest_s: float = _LONGEST_CHAOS_S

    def search(self, tree: Path, arguments: Sequence[str], bounds: Bounds, watch: Watch) -> Finding:
        took_s, runs = 0.0, 0
        left_s = longest_s = bounds.longest_s or self.longest_s
        while runs < bounds.runs and left_s > 0:
            runs += 1
            again = (*arguments, "--seed", str(runs))
            ended = self._run(tree, again, longest_s, watch)
            took_s, left_s = took_s + ended.seconds, left_s - ended.seconds
            if ended.status is None:
                return Finding(f"not done after {longest_s:g} s", runs, took_s, again)
            if ended.status == 1:
                return Finding(_violation(ended), runs, took_s, again)
        return Finding("", runs, took_s)

    def repeat(self, tree: Path, finding: Finding, bounds: Bounds, watch: Watch) -> Finding:
        ended = self._run(tree, finding.again, bounds.longest_s or self.longest_s, watch)
        return Finding("" if ended.status in self.quiet else _violation(ended), 1, ended.seconds)

    def _run(self, tree: Path, arguments: Sequence[str], longest_s: float, watch: Watch) -> Ended:
        ended = run_python(
            tree,
            ["-P", "-m", *self.module.split(), *arguments],
            longest_s=longest_s,
            grace_s=_CHAOS_GRACE_S,
            watch=watch,
        )
        if ended.status not in (None, 1, *self.quiet):
            raise DetectorFailed(f"{self.module} ended with {ended.status}: {_last_output(ended)}")
        return ended


DETECTORS: dict[str, Detector] = {
    SUITE: Suite(),
    SIMULATOR: Simulator(),
    # Status 3 means that something was not proved, which is not a finding.
    CHAOS: Seeds("tidelog chaos", quiet=(0, 3)),
}


def _violation(ended: Ended) -> str:
    """Return the first line of output that names an invariant, else the last line; else the exit status in words."""
    for output in (ended.stdout, ended.stderr):
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        if lines:
            return next((line for line in lines if line.startswith("I") and line[1:2].isdigit()), lines[-1])
    return f"exit status {ended.status}"


def _last_output(ended: Ended) -> str:
    return f"{ended.stdout[-_LAST_OUTPUT_CHARS:]}{ended.stderr[-_LAST_OUTPUT_CHARS:]}".strip()

"""Who may find a bug: the suite, the simulator and chaos; each looks at a tree as it stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tools.mutants.mutant import CHAOS, SIMULATOR, SUITE
from tools.mutants.subprocess_runner import Ended, Watch, run_python

#: A bug that takes more is not found.
MOST_RUNS = 100
_LONGEST_S = 600.0
_LONGEST_CHAOS_S = 3600.0
#: To tidy up in: chaos mends what it broke.
_GRACE_S = 10.0
_CHAOS_GRACE_S = 120.0
_LAST_WORDS = 2000
#: How pytest says that some tests failed.
_TESTS_FAILED = 1
#: What the simulator says of a seed that fails, and of how many are done that did not; and how it ends where an
#: invariant had nothing to look at.
_FAILED = re.compile(r"seed (\d+) fails: (.*)")
_DONE = re.compile(r"(\d+) of \d+ seeds")
_WITHOUT_DATA = 3


class CannotTell(Exception):
    """A finder ended in a way that says nothing of the tree."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a search may take: so many runs, and so many seconds, each finder's own by default."""

    runs: int = MOST_RUNS
    longest_s: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """
    said      what told of the bug, a test or a verdict; "" where nothing did
    seconds   of processors, where the finder computes; of the clock, where it mostly waits
    again     arguments for the run that found it alone; what it finds without the bug is not the bug's doing
    """

    said: str
    runs: int
    seconds: float
    again: tuple[str, ...] = ()


class Finder(Protocol):
    """Runs until it has found something, as often as is worth it. CannotTell."""

    def look(self, tree: Path, arguments: Sequence[str], bounds: Bounds, watch: Watch) -> Finding: ...

    def repeat(self, tree: Path, finding: Finding, bounds: Bounds, watch: Watch) -> Finding:
        """The run that found it, once more."""
        ...


class Suite:
    """The tests: one run, to the first that fails."""

    def look(self, tree: Path, arguments: Sequence[str], bounds: Bounds, watch: Watch) -> Finding:
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
        if ended.status is None:  # a test that waits for ever has noticed something, too
            return Finding(f"not done after {longest_s:g} s", 1, ended.busy_s, tuple(arguments))
        if ended.status == 0:
            return Finding("", 1, ended.busy_s)
        lines = (line.partition(" - ")[0] for line in ended.stdout.splitlines())
        red = [line.partition(" ")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))]
        if not red or ended.status != _TESTS_FAILED:
            raise CannotTell(f"pytest ended with {ended.status}: {_last_words(ended)}")
        return Finding(red[0], 1, ended.busy_s, (red[0],))

    def repeat(self, tree: Path, finding: Finding, bounds: Bounds, watch: Watch) -> Finding:
        return self.look(tree, finding.again, bounds, watch)


@dataclass(frozen=True, slots=True)
class Simulator:
    """All its seeds in one go, to the first that fails; the program ends with 1 then, and says which."""

    module: str = "verify.simulation"

    def look(self, tree: Path, arguments: Sequence[str], bounds: Bounds, watch: Watch) -> Finding:
        ended = self._run(tree, ("--seeds", str(bounds.runs), *arguments), bounds, watch)
        failed = _FAILED.search(ended.stdout)
        counts = _DONE.findall(ended.stdout, 0, failed.start() if failed else len(ended.stdout))
        runs = int(counts[-1]) if counts else 0
        # Too slow for so many seeds, which proves nothing: its own clock ends a wait for ever.
        if ended.status != 1:
            return Finding("", runs, ended.busy_s)
        if failed is None:
            raise CannotTell(f"the simulator ended with 1 and names no seed: {_last_words(ended)}")
        # Not every count is told, but the one with the seed that failed is.
        all_told = _DONE.search(ended.stdout, failed.end())
        runs = int(all_told[1]) if all_told else runs + 1
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
            raise CannotTell(f"the simulator ended with {ended.status}: {_last_words(ended)}")
        return ended


@dataclass(frozen=True, slots=True)
class Seeds:
    """A program that is run with one seed after the other, and ends with 1 where a promise was broken.

    quiet   other ends that say that none was
    """

    module: str
    quiet: Sequence[int] = (0,)
    longest_s: float = _LONGEST_CHAOS_S

    def look(self, tree: Path, arguments: Sequence[str], bounds: Bounds, watch: Watch) -> Finding:
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
            raise CannotTell(f"{self.module} ended with {ended.status}: {_last_words(ended)}")
        return ended


FINDERS: dict[str, Finder] = {
    SUITE: Suite(),
    SIMULATOR: Simulator(),
    # Ends with 3 where something was not proved: that is no finding.
    CHAOS: Seeds("tidelog chaos", quiet=(0, 3)),
}


def _violation(ended: Ended) -> str:
    """The first line that names an invariant, else the last one."""
    for output in (ended.stdout, ended.stderr):
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        if lines:
            return next((line for line in lines if line.startswith("I") and line[1:2].isdigit()), lines[-1])
    return f"exit status {ended.status}"


def _last_words(ended: Ended) -> str:
    return f"{ended.stdout[-_LAST_WORDS:]}{ended.stderr[-_LAST_WORDS:]}".strip()

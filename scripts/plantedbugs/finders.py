"""Who may find a bug: the suite, the simulator and chaos; each looks at a tree as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from plantedbugs.mutant import CHAOS, SIMULATOR, SUITE

MOST_RUNS = 100
#: A run that waits for ever has found something, too.
_LONGEST_S = 600
_LONGEST_CHAOS_S = 3600
_LAST_WORDS = 2000
#: What the simulator says of a seed that fails, and of how many are done that did not; and how it ends where an
#: invariant had nothing to look at.
_FAILED = re.compile(r"seed (\d+) fails: (.*)")
_DONE = re.compile(r"(\d+) of \d+ seeds")
_WITHOUT_DATA = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """`said`: what told of it, a test or a verdict, "" where nothing did; `seed`: of that run, where it has one."""

    said: str
    runs: int
    seconds: float
    seed: int | None = None


class Finder(Protocol):
    """Runs until it has found something, as often as is worth it."""

    def look(self, tree: Path, arguments: Sequence[str], seed: int | None = None) -> Finding:
        """With a `seed` that one run only. RuntimeError where it cannot judge."""


class Suite:
    """The tests: one run, to the first that fails."""

    def look(self, tree: Path, arguments: Sequence[str], seed: int | None = None) -> Finding:
        options = ("-x", "-q", "--tb=no", "--no-header", "-m", "not slow", "-p", "no:cacheprovider")
        done, seconds = _run(
            tree, ["-m", "pytest", *options, *arguments], _LONGEST_S, {"TIDELOG_TESTS": "no shrinking"}
        )
        if done is None:
            return Finding(f"none was done after {_LONGEST_S} s", 1, seconds)
        if done.returncode == 0:
            return Finding("", 1, seconds)
        lines = (line.partition(" - ")[0] for line in done.stdout.splitlines())
        red = [line.partition(" ")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))]
        if not red or done.returncode != 1:
            raise RuntimeError(f"pytest ended with {done.returncode}: {_last_words(done)}")
        return Finding(red[0], 1, seconds)


class Simulator:
    """All its seeds in one go, to the first that fails; the program ends with 1 then, and says which."""

    def __init__(self, module: str = "simulation", most_runs: int = MOST_RUNS) -> None:
        self._module = module
        self._most_runs = most_runs

    def look(self, tree: Path, arguments: Sequence[str], seed: int | None = None) -> Finding:
        which = ("--seeds", str(self._most_runs)) if seed is None else ("--seeds", "1", "--seed", str(seed))
        done, seconds = _run(tree, ["-P", "-m", self._module, *which, *arguments], _LONGEST_S)
        if done is None:  # too slow for so many seeds, which proves nothing: its own clock ends a wait for ever
            return Finding("", self._most_runs, seconds)
        if done.returncode not in (0, 1, _WITHOUT_DATA):
            raise RuntimeError(f"the simulator ended with {done.returncode}: {_last_words(done)}")
        counts = _DONE.findall(done.stdout)
        runs = int(counts[-1]) if counts else 0
        if done.returncode != 1:
            return Finding("", runs, seconds)
        runs += 1  # the one that failed
        failed = _FAILED.search(done.stdout)
        if failed is None:
            return Finding(_violation(done.stdout), runs, seconds, seed)
        return Finding(failed[2].strip(), runs, seconds, int(failed[1]))


class Seeds:
    """A program that is run with one seed after the other, and ends with 1 where a promise was broken.

    quiet       other ends that say that none was
    most_runs   a bug that takes more is not found; nor one that takes longer than `longest_s`
    """

    def __init__(
        self, module: str, quiet: Sequence[int] = (0,), longest_s: float = _LONGEST_S, most_runs: int = MOST_RUNS
    ) -> None:
        self._module = module.split()
        self._most_runs = most_runs
        self._quiet = quiet
        self._longest_s = longest_s

    def look(self, tree: Path, arguments: Sequence[str], seed: int | None = None) -> Finding:
        took, runs = 0.0, 0
        for each in range(1, self._most_runs + 1) if seed is None else (seed,):
            command = ["-P", "-m", *self._module, *arguments, "--seed", str(each)]
            done, seconds = _run(tree, command, self._longest_s)
            took, runs = took + seconds, runs + 1
            if done is None:
                return Finding(f"it was not done after {self._longest_s:g} s", runs, took, each)
            if done.returncode == 1:
                return Finding(_violation(done.stdout) or _violation(done.stderr) or "exit status 1", runs, took, each)
            if done.returncode not in self._quiet:
                raise RuntimeError(f"{self._module[0]} ended with {done.returncode}: {_last_words(done)}")
            if took > self._longest_s:
                break
        return Finding("", runs, took)


FINDERS: dict[str, Finder] = {
    SUITE: Suite(),
    SIMULATOR: Simulator(),
    # Ends with 3 where something was not proved: that is no finding.
    CHAOS: Seeds("tidelog chaos", quiet=(0, 3), longest_s=_LONGEST_CHAOS_S),
}


def _run(
    tree: Path, arguments: Sequence[str], longest_s: float, more: dict[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[str] | None, float]:
    """None where it took too long; and the seconds."""
    # No compiled files: a patch may change a file within the second, and not its size.
    paths = os.pathsep.join((str(tree), str(tree / "scripts")))
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": paths} | (more or {})
    began = time.monotonic()
    try:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=longest_s)
    except subprocess.TimeoutExpired:
        return None, time.monotonic() - began
    return done, time.monotonic() - began


def _violation(output: str) -> str:
    """The first line that names an invariant, else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("I") and line[1:2].isdigit()), lines[-1] if lines else "")


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.stdout[-_LAST_WORDS:]}{done.stderr[-_LAST_WORDS:]}"

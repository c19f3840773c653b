"""A copy of the tree in which bugs are planted, and what the tests say to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from plantedbugs.mutant import PROJECT, Mutant

#: Of the tests of one bug; one that waits for ever is found, too.
_TIMEOUT_S = 600


class NotApplicable(Exception):
    """The patch does not fit the tree."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`red`: the first test that failed; "" where none did."""

    red: str
    seconds: float


def copy_tree(target: Path) -> None:
    """What git knows or would add, as it stands now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        check=True,
    ).stdout
    for name in listed.decode().split("\0"):
        if name and (PROJECT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, target / name)


class Trial:
    """Bugs are planted in `tree`, one at a time."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def fits(self, mutant: Mutant) -> bool:
        return self._apply(mutant, "--check") == ""

    def without_bug(self, tests: Iterable[str]) -> Outcome:
        return self._test(sorted(set(tests)))

    def with_bug(self, mutant: Mutant) -> Outcome:
        """NotApplicable."""
        if complaint := self._apply(mutant):
            raise NotApplicable(complaint)
        try:
            return self._test(mutant.tests)
        finally:
            self._apply(mutant, "--reverse")

    def _apply(self, mutant: Mutant, *how: str) -> str:
        """Git's complaint, if it has one."""
        command = ["git", "apply", *how, str(mutant.path)]
        # A patch is for this copy, not for a repository that it may happen to lie in.
        environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(self.tree.parent)}
        done = subprocess.run(command, cwd=self.tree, env=environment, capture_output=True, text=True)
        return done.stderr.strip() if done.returncode else ""

    def _test(self, tests: Sequence[str]) -> Outcome:
        started = time.monotonic()
        # No compiled files: a patch may change a file within the second, and not its size.
        environment = os.environ | {
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(self.tree),
            "TIDELOG_TESTS": "no shrinking",
        }
        options = ("-x", "-q", "--tb=no", "--no-header", "-m", "not slow", "-p", "no:cacheprovider")
        command = [sys.executable, "-m", "pytest", *options, *tests]
        try:
            done = subprocess.run(
                command, cwd=self.tree, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return Outcome(f"none was done after {_TIMEOUT_S} s", time.monotonic() - started)
        seconds = time.monotonic() - started
        if done.returncode == 0:
            return Outcome("", seconds)
        lines = (line.partition(" - ")[0] for line in done.stdout.splitlines())
        red = [line.partition(" ")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))]
        if not red or done.returncode != 1:
            raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return Outcome(red[0], seconds)

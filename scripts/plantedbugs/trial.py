"""A copy of the tree in which bugs are planted, one at a time."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plantedbugs.mutant import PROJECT, Mutant


class NotApplicable(Exception):
    """The patch does not fit the tree."""


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
    """Bugs are planted in `tree`."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def fits(self, mutant: Mutant) -> bool:
        return self._apply(mutant, "--check") == ""

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The bug is there meanwhile. NotApplicable."""
        if complaint := self._apply(mutant):
            raise NotApplicable(complaint)
        try:
            yield
        finally:
            self._apply(mutant, "--reverse")

    def _apply(self, mutant: Mutant, *how: str) -> str:
        """Git's complaint, if it has one."""
        command = ["git", "apply", *how, str(mutant.path)]
        # A patch is for this copy, not for a repository that it may happen to lie in.
        environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(self.tree.parent)}
        done = subprocess.run(command, cwd=self.tree, env=environment, capture_output=True, text=True)
        return done.stderr.strip() if done.returncode else ""

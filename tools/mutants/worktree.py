"""A copy of the tree in which bugs are planted, one at a time."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.mutants.mutant import DIRECTORY, PROJECT, Mutant


class NotApplicable(Exception):
    """The patch does not fit the tree."""


class NoCheckout(Exception):
    """Without git nobody can say what belongs to the tree."""


def copy_tree(target: Path) -> None:
    """What git knows or would add, as it stands now. NoCheckout."""
    for name in _git("ls-files", "-z", "--cached", "--others", "--exclude-standard"):
        if (PROJECT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, target / name)


def uncommitted() -> list[str]:
    """What was changed or added since the last commit, but for the patches themselves. NoCheckout."""
    # Two letters and a space stand before each name; a renamed file is told as one that went and one that came.
    names = [entry[3:] for entry in _git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")]
    patches = DIRECTORY.relative_to(PROJECT)
    return [name for name in names if not Path(name).is_relative_to(patches)]


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True)
    if done.returncode:
        raise NoCheckout(done.stderr.decode(errors="replace").strip())
    return [name for name in done.stdout.decode().split("\0") if name]


class Trial:
    """Bugs are planted in `tree`."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def complaint(self, mutant: Mutant) -> str:
        """Why the patch does not fit; empty where it does."""
        return self._apply(mutant, "--check")

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
        return (done.stderr.strip() or f"git apply ended with {done.returncode}") if done.returncode else ""

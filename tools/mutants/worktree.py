"""Copies the tree and plants bugs in the copy, one at a time."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.mutants.mutant import DIRECTORY, PROJECT, Mutant


class NotApplicable(Exception):
    """The patch does not apply to the tree."""


class NoCheckout(Exception):
    """There is no git checkout, without which the files of the tree are unknown."""


def copy_tree(target: Path) -> None:
    """Copy all files of the project that git tracks or would add, with uncommitted changes, into `target`.

    Raises NoCheckout.
    """
    for name in _git("ls-files", "-z", "--cached", "--others", "--exclude-standard"):
        if (PROJECT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, target / name)


def uncommitted() -> list[str]:
    """Return the names of files that were changed, added or deleted since the last commit, except the patches.

    Raises NoCheckout.
    """
    # Two letters and a space stand before each name. A renamed file is listed as one deleted and one added.
    names = [entry[3:] for entry in _git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")]
    patches = DIRECTORY.relative_to(PROJECT)
    return [name for name in names if not Path(name).is_relative_to(patches)]


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True)
    if done.returncode:
        raise NoCheckout(done.stderr.decode(errors="replace").strip())
    return [name for name in done.stdout.decode().split("\0") if name]


class Worktree:
    """A copy of the project's tree, in which bugs are planted one at a time."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def complaint(self, mutant: Mutant) -> str:
        """Return git's reason why the patch does not apply to the tree, or "" if it does; nothing is changed."""
        return self._apply(mutant, "--check")

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """Apply the patch while the block runs, and take it back afterwards.

        Raises NotApplicable if it does not apply.
        """
        if complaint := self._apply(mutant):
            raise NotApplicable(complaint)
        try:
            yield
        finally:
            self._apply(mutant, "--reverse")

    def _apply(self, mutant: Mutant, *how: str) -> str:
        """Run `git apply` with these options, and return git's error, or "" if there is none."""
        command = ["git", "apply", *how, str(mutant.path)]
        # The patch is for this copy, and not for a repository that contains the copy's directory.
        environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(self.tree.parent)}
        done = subprocess.run(command, cwd=self.tree, env=environment, capture_output=True, text=True)
        return (done.stderr.strip() or f"git apply ended with {done.returncode}") if done.returncode else ""

"""A bug that is kept as a patch.

    Bug: how the program is wrong then
    Red: tests/storage/test_lookup.py tests/storage/test_indexes.py

    diff --git a/storage/... b/storage/...

The tests under `Red:` are those of which at least one must fail. They are few, so that a bug is found in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
DIRECTORY = PROJECT / "tests" / "mutants"


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name`: the patch's, without its ending. `tests`: what pytest takes."""

    name: str
    bug: str
    tests: tuple[str, ...]
    path: Path

    @classmethod
    def read(cls, path: Path) -> Mutant:
        """ValueError where the patch does not say what it breaks and who notices."""
        head = path.read_text().partition("\ndiff ")[0]
        fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
        if not fields.get("Bug") or not fields.get("Red"):
            raise ValueError(f"{path}: begins with 'Bug: …' and 'Red: tests…'")
        return cls(path.stem, fields["Bug"], tuple(fields["Red"].split()), path)


def all_mutants() -> list[Mutant]:
    """By name."""
    return [Mutant.read(path) for path in sorted(DIRECTORY.glob("*.patch"))]

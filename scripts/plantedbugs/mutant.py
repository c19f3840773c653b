"""A bug that is kept as a patch.

    Bug: how the program is wrong then
    Row: M3
    Red: tests/storage/test_lookup.py tests/storage/test_indexes.py
    Simulator: --seconds 60
    Chaos: --scenario leader-kill --seconds 30

    diff --git a/storage/... b/storage/...

The tests under `Red:` are those of which at least one must fail. They are few, so that a bug is found in seconds.
`Simulator:` and `Chaos:` stand where these find it too, with what they are to be started with, be it nothing; the seed
is added. `Row:` is what the list of faults calls it, where it is on that list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
DIRECTORY = PROJECT / "tests" / "mutants"

SUITE = "suite"
SIMULATOR = "simulator"
CHAOS = "chaos"
_FINDERS = {"Red": SUITE, "Simulator": SIMULATOR, "Chaos": CHAOS}


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name`: the patch's, without its ending. `found_by`: the arguments of each finder that names it."""

    name: str
    bug: str
    row: str
    found_by: Mapping[str, tuple[str, ...]]
    path: Path

    @property
    def tests(self) -> tuple[str, ...]:
        """What pytest takes."""
        return self.found_by[SUITE]

    @classmethod
    def read(cls, path: Path) -> Mutant:
        """ValueError where the patch does not say what it breaks and who notices."""
        head = path.read_text().partition("\ndiff ")[0]
        fields = {
            name: value.strip() for name, colon, value in (line.partition(":") for line in head.splitlines()) if colon
        }
        if not fields.get("Bug") or not fields.get("Red"):
            raise ValueError(f"{path}: begins with 'Bug: …' and 'Red: tests…'")
        if unknown := fields.keys() - {"Bug", "Row", *_FINDERS}:
            raise ValueError(f"{path}: nobody reads {', '.join(sorted(unknown))}")
        found_by = {finder: tuple(fields[name].split()) for name, finder in _FINDERS.items() if name in fields}
        return cls(path.stem, fields["Bug"], fields.get("Row", ""), found_by, path)


def all_mutants() -> list[Mutant]:
    """By name."""
    return [Mutant.read(path) for path in sorted(DIRECTORY.glob("*.patch"))]

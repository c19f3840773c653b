"""A bug that is kept as a patch.

    Bug: how the program is wrong then
    Row: M3
    Red: tests/storage/test_timestamp_lookup.py tests/storage/test_indexes.py
    Simulator: --seconds 60
    Chaos: --scenario leader-kill --seconds 30
    Found: suite, 1 run, 2.4 s, tests/storage/test_timestamp_lookup.py::test_what_it_broke
    Found: simulator, 7 runs, 61.0 s, I8 what it broke
    Missed: chaos, 100 runs, 3600.0 s

    diff --git a/storage/... b/storage/...

The tests under `Red:` are those of which at least one must fail. They are few, so that a bug is found in seconds.
`Simulator:` and `Chaos:` stand where these find it too, with what they are to be started with, be it nothing; the seed
is added. `Row:` is what the list of faults calls it, where it is on that list. What came of it the last time that
somebody wrote it down (`scripts/mutants --record`) are `Found:` and `Missed:`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
DIRECTORY = PROJECT / "tests" / "mutants"

SUITE = "suite"
SIMULATOR = "simulator"
CHAOS = "chaos"
_FINDERS = {"Red": SUITE, "Simulator": SIMULATOR, "Chaos": CHAOS}
_FIELD_OF = {finder: field for field, finder in _FINDERS.items()}
_FOUND, _MISSED = "Found", "Missed"
_OUTCOME = re.compile(r"(\w+), (\d+) runs?, (\d+\.\d) s(?:, (.+))?")
_MOST_SAID = 160


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one finder made of the bug; `said` is empty where he missed it."""

    finder: str
    runs: int
    seconds: float
    said: str = ""

    def __str__(self) -> str:
        said = f", {_one_line(self.said)}" if self.said else ""
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return f"{_FOUND if self.said else _MISSED}: {self.finder}, {runs}, {self.seconds:.1f} s{said}"

    @classmethod
    def read(cls, field: str, text: str) -> Recorded:
        """ValueError."""
        parts = _OUTCOME.fullmatch(text)
        if parts is None or parts[1] not in _FIELD_OF or bool(parts[4]) != (field == _FOUND):
            raise ValueError(f"'{field}: {text}' is not 'finder, N runs, N.N s' and what it said")
        return cls(parts[1], int(parts[2]), float(parts[3]), parts[4] or "")


@dataclass(frozen=True, slots=True)
class Mutant:
    """
    name       the patch's, without its ending
    found_by   the arguments of each finder that names it
    recorded   by finder
    files      that it changes
    """

    name: str
    bug: str
    row: str
    found_by: Mapping[str, tuple[str, ...]]
    recorded: Mapping[str, Recorded]
    files: tuple[str, ...]
    path: Path

    @property
    def tests(self) -> tuple[str, ...]:
        """What pytest takes."""
        return self.found_by[SUITE]

    @classmethod
    def read(cls, path: Path) -> Mutant:
        """ValueError where the patch does not say what it breaks and who notices, or says what nobody reads."""
        head, _, diff = path.read_text().partition("\ndiff ")
        fields: dict[str, str] = {}
        recorded: dict[str, Recorded] = {}
        for line in filter(None, head.splitlines()):
            name, colon, value = line.partition(":")
            if name in (_FOUND, _MISSED):
                try:
                    outcome = Recorded.read(name, value.strip())
                except ValueError as error:
                    raise ValueError(f"{path}: {error}") from None
                recorded[outcome.finder] = outcome
            elif colon and name in {"Bug", "Row", *_FINDERS} and name not in fields:
                fields[name] = value.strip()
            else:
                raise ValueError(f"{path}: nobody reads '{line}'")
        if not fields.get("Bug") or not fields.get("Red"):
            raise ValueError(f"{path}: begins with 'Bug: …' and 'Red: tests…'")
        found_by = {finder: tuple(fields[name].split()) for name, finder in _FINDERS.items() if name in fields}
        if contradictory := [each.finder for each in recorded.values() if bool(each.said) != (each.finder in found_by)]:
            raise ValueError(f"{path}: who is to find it is not who has: {', '.join(contradictory)}")
        files = tuple(re.findall(r"^\+\+\+ b/(.+)$", diff, re.MULTILINE))
        return cls(path.stem, fields["Bug"], fields.get("Row", ""), found_by, recorded, files, path)

    def record(self, outcome: Recorded, arguments: tuple[str, ...]) -> Mutant:
        """Into the patch; who found it is to find it from now on, with `arguments`. Returns what stands there now."""
        found_by = dict(self.found_by)
        if outcome.said:
            found_by.setdefault(outcome.finder, arguments)
        recorded = {**self.recorded, outcome.finder: outcome}
        lines = [f"Bug: {self.bug}", *([f"Row: {self.row}"] if self.row else [])]
        lines += [f"{field}: {' '.join(found_by[by])}".rstrip() for field, by in _FINDERS.items() if by in found_by]
        lines += [str(recorded[finder]) for finder in _FINDERS.values() if finder in recorded]
        diff = self.path.read_text().partition("\ndiff ")[2]
        self.path.write_text("\n".join([*lines, "", f"diff {diff}"]))
        return self.read(self.path)


def all_mutants() -> list[Mutant]:
    """By name. ValueError."""
    return [Mutant.read(path) for path in sorted(DIRECTORY.glob("*.patch"))]


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID]}…"

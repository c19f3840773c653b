"""Reads and writes a planted bug, which is kept as a patch.

    Bug: what the program does wrong with the bug
    Row: M3
    Red: tests/storage/test_timestamp_lookup.py tests/storage/test_indexes.py
    Simulator: --seconds 60
    Chaos: --scenario leader-kill --seconds 30
    Found: suite, 1 run, 2.4 s, tests/storage/test_timestamp_lookup.py::test_what_it_broke
    Found: simulator, 7 runs, 61.0 s, I8 what it broke
    Missed: chaos, 100 runs, 3600.0 s

    diff --git a/storage/... b/storage/...

At least one of the few tests under `Red:` must fail, so that a bug is found in seconds. `Simulator:` and `Chaos:` are
present if these find the bug too, with their arguments, which may be empty. The seed is added. `Row:` is the bug's name
in the list of faults, if the list has it. `Found:` and `Missed:` are the outcomes that `scripts/mutants --record` wrote
last.
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
_DETECTORS = {"Red": SUITE, "Simulator": SIMULATOR, "Chaos": CHAOS}
_FIELD_OF = {finder: field for field, finder in _DETECTORS.items()}
_FOUND, _MISSED = "Found", "Missed"
_OUTCOME = re.compile(r"(\w+), (\d+) runs?, (\d+\.\d) s(?:, (.+))?")
_MOST_SAID_CHARS = 160


@dataclass(frozen=True, slots=True)
class Recorded:
    """The outcome of one detector for a bug. `said` is empty if the detector missed the bug."""

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
        """Return the outcome in the text after the field's name, "Found" or "Missed". ValueError for another form."""
        parts = _OUTCOME.fullmatch(text)
        if parts is None or parts[1] not in _FIELD_OF or bool(parts[4]) != (field == _FOUND):
            raise ValueError(f"'{field}: {text}' is not 'detector, N runs, N.N s, finding'")
        return cls(parts[1], int(parts[2]), float(parts[3]), parts[4] or "")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug.

    name       the patch's name without its suffix
    bug        what the program does wrong, in words
    row        the bug's name in the list of faults; "" if the list does not have it
    found_by   by detector that the patch names: its arguments
    recorded   by detector: the outcome that was recorded last
    files      the files that the patch changes
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
        """Return the arguments for pytest: the few tests of which at least one must fail."""
        return self.found_by[SUITE]

    @classmethod
    def read(cls, path: Path) -> Mutant:
        """Return the bug of a patch.

        Raises ValueError if a required field is missing, a line is unknown, or a recorded outcome contradicts the
        detectors that the patch names.
        """
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
            elif colon and name in {"Bug", "Row", *_DETECTORS} and name not in fields:
                fields[name] = value.strip()
            else:
                raise ValueError(f"{path}: unknown line '{line}'")
        if not fields.get("Bug") or not fields.get("Red"):
            raise ValueError(f"{path}: must begin with 'Bug: …' and 'Red: tests…'")
        found_by = {finder: tuple(fields[name].split()) for name, finder in _DETECTORS.items() if name in fields}
        if contradictory := [each.finder for each in recorded.values() if bool(each.said) != (each.finder in found_by)]:
            raise ValueError(
                f"{path}: the recorded outcome contradicts the named detectors: {', '.join(contradictory)}"
            )
        files = tuple(re.findall(r"^\+\+\+ b/(.+)$", diff, re.MULTILINE))
        return cls(path.stem, fields["Bug"], fields.get("Row", ""), found_by, recorded, files, path)

    def record(self, outcome: Recorded, arguments: tuple[str, ...]) -> Mutant:
        """Write an outcome into the patch's file, in the place of an earlier one of this detector; return the new bug.

        A detector that found the bug is named from now on, with `arguments`.
        """
        found_by = dict(self.found_by)
        if outcome.said:
            found_by.setdefault(outcome.finder, arguments)
        recorded = {**self.recorded, outcome.finder: outcome}
        lines = [f"Bug: {self.bug}", *([f"Row: {self.row}"] if self.row else [])]
        lines += [f"{field}: {' '.join(found_by[by])}".rstrip() for field, by in _DETECTORS.items() if by in found_by]
        lines += [str(recorded[finder]) for finder in _DETECTORS.values() if finder in recorded]
        diff = self.path.read_text().partition("\ndiff ")[2]
        self.path.write_text("\n".join([*lines, "", f"diff {diff}"]))
        return self.read(self.path)


def all_mutants() -> list[Mutant]:
    """Return all planted bugs, sorted by name. Raises ValueError, which names the file, for a malformed patch."""
    return [Mutant.read(path) for path in sorted(DIRECTORY.glob("*.patch"))]


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_SAID_CHARS else f"{text[:_MOST_SAID_CHARS]}…"

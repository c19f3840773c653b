"""Everything that OPERATIONS.md names for a promise exists, and everything that exists belongs to a promise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tests.operations import ROOT, section
from verify.chaos.faults import catalogue
from verify.chaos.report.promises import PROMISES
from verify.checker.checker import INVARIANTS
from verify.simulation.fault_kinds import FaultKind
from verify.simulation.run import JUDGED

SECTION = section("What stands behind the promises")
ROWS = catalogue()
KEYS = [each.key for each in INVARIANTS]
MUTANTS = {path.stem: path.read_text() for path in (ROOT / "tests/mutants").glob("*.patch")}


def table(first: str) -> list[list[str]]:
    """Return the cells of the table whose first column has this heading."""
    lines = SECTION.split(f"\n| {first} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def column(place: int) -> list[str]:
    """Return the entries of the promises in this column; a range as its members."""
    return [name for cells in table("promise") for name in names(cells[place])]


def names(cell: str) -> Iterator[str]:
    for each in filter(None, cell.split(", ")):
        if found := re.fullmatch(r"([FI])(\d+)–\1(\d+)", each):
            letter, first, last = found.groups()
            yield from (f"{letter}{number}" for number in range(int(first), int(last) + 1))
        else:
            yield each.strip("`")


def fault_lines() -> Iterator[str]:
    for row, kinds in ROWS.items():
        faults = [kind() for kind in kinds]
        bounds = dict.fromkeys(bound(fault.availability.most_gap_ms) for fault in faults)
        yield f"| {row} | {'; '.join(fault.name for fault in faults)} | {' or '.join(bounds)} |"


def bound(most_gap_ms: int | None) -> str:
    return "–" if most_gap_ms is None else f"{most_gap_ms / 1000:g} s"


def lacking(wanted: Sequence[str]) -> str:
    """Return the missing lines, to be put into the document."""
    return "\n".join(line for line in wanted if line not in SECTION.splitlines())


def test_references_of_every_promise_exist() -> None:
    assert set(column(1)) - set(ROWS) == set()
    assert set(column(2)) - set(KEYS) == set()
    assert set(column(3)) - set(FaultKind) == set()
    assert set(column(4)) - set(MUTANTS) == set()


def test_every_fault_invariant_and_planted_bug_belongs_to_a_promise() -> None:
    assert set(ROWS) - set(column(1)) == set()
    assert set(KEYS) - set(column(2)) == set()
    assert set(FaultKind) - set(column(3)) == set()
    assert {name for name, text in MUTANTS.items() if re.search(r"^Row: M\d+$", text, re.MULTILINE)} <= set(column(4))


def test_every_promise_has_a_fault_an_invariant_and_a_planted_bug() -> None:
    assert [cells[0] for cells in table("promise") if len(cells) != 5 or not all(cells)] == []


def test_the_simulator_judges_every_invariant() -> None:
    assert list(JUDGED) == KEYS


def test_invariants_are_documented_as_the_report_states_them() -> None:
    assert list(PROMISES) == KEYS
    assert lacking([f"| {key} | {promise} |" for key, promise in PROMISES.items()]) == ""
    assert [cells[0] for cells in table("invariant")] == KEYS


def test_every_fault_is_listed_with_its_names_and_its_bound() -> None:
    assert lacking(list(fault_lines())) == ""
    assert [cells[0] for cells in table("row")] == list(ROWS)

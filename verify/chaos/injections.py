"""What became of each step of a schedule, as it stands in `DIR/faults.jsonl` and is counted in the end.

A line is one JSON object, by the fields of `Injection`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from tidelog.history.history_files import line_errors, numbered_lines
from verify.chaos.scenarios import row_number

FAULTS_FILE: Final = "faults.jsonl"


class Outcome(StrEnum):
    """Of one step."""

    BIT = "bit"
    """It was injected, and the cluster noticed."""
    VOID = "void"
    """It proved nothing: nobody noticed, or there was nothing to notice it."""
    SKIPPED = "skipped"
    """It cannot be injected here."""


@dataclass(frozen=True, slots=True)
class Injection:
    """One step. Times are monotonic nanoseconds, None where it did not come so far.

    what             to whom it was done
    why              by what it was seen to bite; why it is void or was skipped
    t_bit            when the cluster was first seen to notice it
    t_whole          when every partition had all its replicas in sync again
    acknowledged     records acknowledged from the injection to the healing
    longest_gap_ms   the longest time without an acknowledged produce, on any partition, until all was whole
    most_gap_ms      what the fault may cost; None: as long as it lasts
    leaves_majority  whether operations had to succeed meanwhile
    was_cut_short    it could not be injected, or somebody wanted the run to end: it did not last for its time
    broke            which bound of its row was not kept, besides that of availability; empty: none
    """

    row: str
    name: str
    outcome: Outcome
    why: str
    what: str = ""
    t_inject: int | None = None
    t_bit: int | None = None
    t_heal: int | None = None
    t_whole: int | None = None
    acknowledged: int = 0
    longest_gap_ms: float = 0.0
    most_gap_ms: int | None = None
    leaves_majority: bool = True
    was_cut_short: bool = False
    broke: str = ""


class FaultsFile:
    """One line an injection, written when it is over."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FAULTS_FILE
        self.injections: list[Injection] = []

    def add(self, injection: Injection) -> None:
        self.injections.append(injection)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(injection), ensure_ascii=False) + "\n")


def read_faults(directory: Path) -> list[Injection]:
    """What a `FaultsFile` has written; none where there is no such file. HistoryError where a line is none."""
    path = directory / FAULTS_FILE
    if not path.exists() or not path.stat().st_size:
        return []
    found = []
    for number, line in numbered_lines(path):
        with line_errors(path, number):
            found.append(_injection(line))
    return found


def row_name(value: object) -> str:
    """ValueError where it is no row's name."""
    row_number(str(value))
    return str(value)


def _injection(line: Mapping[str, Any]) -> Injection:
    most_gap_ms = line.get("most_gap_ms")
    return Injection(
        row=row_name(line["row"]),
        name=str(line["name"]),
        outcome=Outcome(line["outcome"]),
        why=str(line.get("why") or ""),
        what=str(line.get("what") or ""),
        t_inject=_time(line.get("t_inject")),
        t_bit=_time(line.get("t_bit")),
        t_heal=_time(line.get("t_heal")),
        t_whole=_time(line.get("t_whole")),
        acknowledged=int(line.get("acknowledged") or 0),
        longest_gap_ms=float(line.get("longest_gap_ms") or 0),
        most_gap_ms=None if most_gap_ms is None else int(most_gap_ms),
        leaves_majority=bool(line.get("leaves_majority", True)),
        was_cut_short=bool(line.get("was_cut_short", False)),
        broke=str(line.get("broke") or ""),
    )


def _time(value: object) -> int | None:
    if value is None or type(value) is int:
        return value
    raise TypeError(f"a time is nanoseconds or null, not {value!r}")

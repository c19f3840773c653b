"""The outcomes of the steps of a schedule, as `DIR/faults.jsonl` stores them.

Each line is one JSON object with the fields of `Injection`.
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
    """The outcome of one step."""

    BIT = "bit"
    """The fault was injected, and the cluster noticed it."""
    AGAIN = "again"
    """The fault was injected and healed, but the cluster did not notice it. The next step is another attempt of the
    same fault, and decides.
    """
    VOID = "void"
    """The step proved nothing, because the cluster did not notice the last attempt of the fault, or the fault could
    not be injected or healed.
    """
    SKIPPED = "skipped"
    """The fault cannot be injected in this environment."""


@dataclass(frozen=True, slots=True)
class Injection:
    """One step. Times are monotonic nanoseconds, or None if the step did not get so far.

    name             the fault's description; empty if no fault is implemented for the row
    what             the victims and the action; empty if the fault was not injected
    why              how the cluster noticed the fault, or why the step is repeated, void or skipped
    t_inject         when the injection began
    t_bit            when the cluster was first seen to notice the fault; None: never
    t_heal           when the healing ended
    t_whole          when all replicas of every partition were in sync again; None: not in time
    acknowledged     the number of records acknowledged from the injection to the healing
    longest_gap_ms   the longest time without an acknowledged produce request on a partition, until all replicas were in
                     sync
    most_gap_ms      the permitted unavailability, longer if an administrator moves leaders; None: unlimited
    leaves_majority  whether operations had to succeed during the fault, unless `was_cut_short`
    was_cut_short    the fault did not last for its time, because the injection failed or the run was asked to stop
    broke            the bound of the row, other than availability, that was exceeded; empty: none
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
    """The file of injections, DIR/faults.jsonl, which `add` appends to. The caller adds each injection when it has
    ended.

    `injections` has those that were added through this object.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / FAULTS_FILE
        self.injections: list[Injection] = []

    def add(self, injection: Injection) -> None:
        self.injections.append(injection)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(injection), ensure_ascii=False) + "\n")


def read_faults(directory: Path) -> list[Injection]:
    """Return the injections of DIR/faults.jsonl in order, or an empty list if the file is missing or empty.

    A last line without a line end is ignored. Raise HistoryError for an invalid line, and OSError if the read fails.
    """
    path = directory / FAULTS_FILE
    if not path.exists() or not path.stat().st_size:
        return []
    found = []
    for number, line in numbered_lines(path):
        with line_errors(path, number):
            found.append(_injection(line))
    return found


def row_name(value: object) -> str:
    """Return `value` as the name of a row. Raise ValueError if the text after its first character is not an integer."""
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
    raise TypeError(f"a time must be an integer number of nanoseconds or null, not {value!r}")

"""What became of each step of a schedule, as it stands in `DIR/faults.jsonl` and is counted in the end."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Final

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
    acknowledged     operations that succeeded from the injection to the healing
    longest_gap_ms   the longest time without an acknowledged produce, on any partition, until all was whole
    most_gap_ms      what the fault may cost; None: as long as it lasts
    leaves_majority  whether operations had to succeed meanwhile
    was_cut_short    by somebody who wanted the run to end
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


class FaultsFile:
    """One line an injection, written when it is over."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FAULTS_FILE
        self.injections: list[Injection] = []

    def add(self, injection: Injection) -> None:
        self.injections.append(injection)
        values = {field.name: getattr(injection, field.name) for field in fields(injection)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values, ensure_ascii=False) + "\n")

"""Prints progress and outcomes, line by line for people and as one object for programs."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import IO

from tools.mutants.mutant import Mutant
from tools.mutants.runner import Outcome, Verdict, passed
from tools.terminal_status.status_line import StatusLine

_LINE_CHARS = 110


class Progress:
    """Shows one changing line on a terminal: `12 of 95, a-bug, suite: 34 s  last line`."""

    def __init__(self, total: int, stream: IO[str] = sys.stderr) -> None:
        self._total = total
        self._line = StatusLine(stream, _LINE_CHARS)
        self._searches: dict[tuple[str, str], float] = {}

    def follow(self, mutant: Mutant, by: str, line: str) -> None:
        """Show the last line of the search for the bug by the detector `by`; its time counts from the first call."""
        began = self._searches.setdefault((mutant.name, by), time.monotonic())
        place = f"{len(self._searches)} of {self._total}"
        self._line.show(f"{place}, {mutant.name}, {by}: {time.monotonic() - began:.0f} s  {line}")

    def clear(self) -> None:
        """Remove the changing line before other output."""
        self._line.clear()


def line(outcome: Outcome, width: int) -> str:
    """Return an outcome in one line; `width` is that of the column of names."""
    mutant, finding = outcome.mutant, outcome.finding
    runs = f"{finding.runs:>3} run{'s' if finding.runs != 1 else ' '}"
    said = " ".join(finding.said.split())
    return (
        f"{mutant.name:<{width}}  {mutant.row:<3}  {outcome.by:<9}  {finding.seconds:6.1f} s  {runs}"
        f"  {outcome.verdict}  {said}"
    ).rstrip()


def summary(outcomes: Sequence[Outcome], total: int) -> str:
    """Return a line for each detector with the number of bugs that it found, of `total`, its most runs and its time."""
    by_finder: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_finder[outcome.by].append(outcome)
    lines = []
    for name, theirs in by_finder.items():
        found = [outcome for outcome in theirs if outcome.verdict is Verdict.FOUND]
        most = max((outcome.finding.runs for outcome in found), default=0)
        seconds = sum(outcome.finding.seconds for outcome in theirs)
        lines.append(f"{name}: {len(found)} of {total} bugs found, in at most {most} runs each, {seconds:.0f} s")
    return "\n".join(lines)


def as_json(chosen: Sequence[Mutant], outcomes: Sequence[Outcome]) -> str:
    """Return all outcomes as one JSON object, with `passed`: whether every bug was found."""
    outcomes_as_json = [
        _described(each.mutant) | {"by": each.by, "verdict": each.verdict} | asdict(each.finding) for each in outcomes
    ]
    return json.dumps({"passed": passed(chosen, outcomes), "mutants": outcomes_as_json})


def listing(chosen: Sequence[Mutant]) -> str:
    """Return a line for each bug: its name, its row, the detectors that the patch names, and the bug in words."""
    width = max(len(mutant.name) for mutant in chosen)
    return "\n".join(
        f"{mutant.name:<{width}}  {mutant.row:<3}  {', '.join(mutant.found_by)}: {mutant.bug}" for mutant in chosen
    )


def listing_as_json(chosen: Sequence[Mutant]) -> str:
    """Return the list of bugs as JSON, with files, detectors and recorded outcomes."""
    return json.dumps(
        [
            _described(mutant)
            | {
                "files": mutant.files,
                "found_by": dict(mutant.found_by),
                "recorded": [asdict(each) for each in mutant.recorded.values()],
            }
            for mutant in chosen
        ]
    )


def _described(mutant: Mutant) -> dict[str, object]:
    return {"name": mutant.name, "row": mutant.row, "bug": mutant.bug}

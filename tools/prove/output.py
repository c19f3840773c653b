"""Prints the progress of a step, and a table of all outcomes at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO

from tools.prove.running import Ending, Result
from tools.prove.steps import Step
from tools.terminal_status.status_line import StatusLine

_LINE_CHARS = 118
_LAST_LINE_CHARS = 70
#: The time between lines of progress without a terminal.
_PRINT_EVERY_S = 60.0


class Progress:
    """Shows one changing line on a terminal, else a line a minute: `2 of 11, checker: 1 of about 2 min  last line`."""

    def __init__(self, place: str, step: Step, stream: IO[str] = sys.stderr) -> None:
        self._head = f"{place}, {step.name}"
        self._minutes = step.minutes
        self._stream = stream
        self._line = StatusLine(stream, _LINE_CHARS)
        self._next_s = 0.0

    def __call__(self, seconds: float, last_line: str) -> None:
        text = f"{self._head}: {seconds / 60:.0f} of about {self._minutes} min  {last_line}"
        self._line.show(text)
        if not self._line.shown and seconds >= self._next_s:
            self._next_s = seconds + _PRINT_EVERY_S
            self._stream.write(f"{text[:_LINE_CHARS]}\n")
            self._stream.flush()

    def clear(self) -> None:
        """Remove the changing line before other output."""
        self._line.clear()


def listing(steps: Sequence[Step]) -> str:
    """Return a line for each step with its minutes, and one with all minutes together."""
    width = max(len(step.name) for step in steps)
    lines = [f"{step.name:<{width}}  {step.minutes:>3} min  {step.about}" for step in steps]
    total = sum(step.minutes for step in steps)
    return "\n".join([*lines, f"{'':<{width}}  {total:>3} min  in all, on two cores; chaos needs root"])


def table(results: Sequence[Result]) -> str:
    """Return a table with a line for each result: step, outcome, minutes, last line of output, and file."""
    rows = [("step", "outcome", "min", "last words", "kept in"), *map(_row, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) if column == 2 else cell.ljust(width)
                  for column, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    )  # fmt: skip


def _row(result: Result) -> tuple[str, ...]:
    minutes = f"{result.seconds / 60:.1f}" if result.kept else ""
    return result.step.name, result.ending, minutes, result.last_line[:_LAST_LINE_CHARS], str(result.kept or "")


def status(results: Sequence[Result]) -> int:
    """Return the exit status of the worst outcome: 1 failed, 130 stopped or not started, 3 not proved, 0 passed."""
    endings = {result.ending for result in results}
    if Ending.FAILED in endings:
        return 1
    if endings & {Ending.STOPPED, Ending.MISSING}:
        return 130
    return 3 if Ending.UNPROVED in endings else 0

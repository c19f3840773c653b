"""Runs one step: its command, its output, and its outcome."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tools.prove.steps import Step
from tools.supervised_process import Stop, end, start
from tools.terminal_status.last_line import last_line

_LOOK_S = 0.5
#: After Ctrl-C chaos undoes its faults and judges what it has recorded.
_STOP = Stop(grace_s=300.0, group=True)

#: Called with the seconds so far and the last line of the command's output.
Watch = Callable[[float, str], object]


class Ending(StrEnum):
    """The outcome of a step.

    UNPROVED   no fault was found, but not everything was checked, or the step cannot run here
    STOPPED    ended by Ctrl-C
    MISSING    not started, because an earlier step was stopped
    """

    PASSED = "passed"
    FAILED = "FAILED"
    UNPROVED = "NOT PROVED"
    STOPPED = "stopped"
    MISSING = "not started"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a step.

    last_line   the last line of its output, or why it was not started
    kept        the file with all its output; None if it was not started
    """

    step: Step
    ending: Ending
    seconds: float = 0.0
    last_line: str = ""
    kept: Path | None = None


def run(step: Step, scripts: Path, reports: Path, watch: Watch, *, root: bool) -> Result:
    """Run a step to its end, and write its output to a file in `reports`.

    Ctrl-C is passed on to the command, which has five minutes to clean up, and the step counts as stopped. A step that
    needs root is not started without it.
    """
    if step.as_root and not root:
        return Result(step, Ending.UNPROVED, last_line="not started: faults of networks and disks need root")
    kept, began = reports / f"{step.name}.txt", time.monotonic()
    with kept.open("w+b") as output:
        try:
            process = start([scripts / step.command[0], *step.command[1:]], stdout=output)
        except OSError as error:
            return Result(step, Ending.UNPROVED, last_line=f"not started: {error}")
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
                watch(time.monotonic() - began, last_line(output))
            ending = _ending(step, process.returncode)
        except KeyboardInterrupt:
            watch(time.monotonic() - began, "Ctrl-C: the command is cleaning up; a second Ctrl-C kills it")
            with suppress(KeyboardInterrupt):
                end(process, _STOP)
            ending = Ending.STOPPED
        return Result(step, ending, time.monotonic() - began, last_line(output), kept)


def _ending(step: Step, status: int) -> Ending:
    if status in step.unproved:
        return Ending.UNPROVED
    return Ending.FAILED if status else Ending.PASSED

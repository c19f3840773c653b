"""One step: its command, what that says meanwhile, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from watching.last_line import last_line

from proving.steps import Step

_LOOK_S = 0.5
#: After Ctrl-C: chaos mends what it broke, and judges what it has seen.
_GRACE_S = 300.0

#: Told the seconds so far, and the last line of what a command has said.
Watch = Callable[[float, str], object]


class Ending(StrEnum):
    """How a step came out."""

    PASSED = "passed"
    FAILED = "FAILED"
    UNPROVED = "NOT PROVED"
    STOPPED = "stopped"
    MISSING = "not begun"


@dataclass(frozen=True, slots=True)
class Result:
    """`said`: its last words. `kept`: where all of them are; None where there are none."""

    step: Step
    ending: Ending
    seconds: float = 0.0
    said: str = ""
    kept: Path | None = None


def run(step: Step, scripts: Path, reports: Path, watch: Watch, *, root: bool) -> Result:
    """All that its command says goes to a file. After Ctrl-C it is ended like that, too, and has stopped."""
    if step.as_root and not root:
        return Result(step, Ending.UNPROVED, said="not begun: faults of networks and disks need root")
    kept, began = reports / f"{step.name}.txt", time.monotonic()
    with kept.open("w+b") as said:
        try:
            process = subprocess.Popen(
                [scripts / step.command[0], *step.command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                # Whoever presses Ctrl-C means this program, which tells the command itself.
                start_new_session=True,
            )
        except OSError as error:
            return Result(step, Ending.UNPROVED, said=f"not begun: {error}")
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
                watch(time.monotonic() - began, last_line(said))
            ending = _ending(step, process.returncode)
        except KeyboardInterrupt:
            watch(time.monotonic() - began, "Ctrl-C: it ends what it started; once more kills it")
            _end(process)
            ending = Ending.STOPPED
        return Result(step, ending, time.monotonic() - began, last_line(said), kept)


def _ending(step: Step, status: int) -> Ending:
    if status in step.unproved:
        return Ending.UNPROVED
    return Ending.FAILED if status else Ending.PASSED


def _end(process: subprocess.Popen[bytes]) -> None:
    """As a terminal does it: a Ctrl-C is for the command and for those that it waits for. Whoever is left is killed."""
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(_GRACE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

"""One step: its command, what that says meanwhile, and how it ends."""

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
#: After Ctrl-C: chaos mends what it broke, and judges what it has seen.
_STOP = Stop(grace_s=300.0, group=True)

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
            process = start([scripts / step.command[0], *step.command[1:]], stdout=said)
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
            with suppress(KeyboardInterrupt):
                end(process, _STOP)
            ending = Ending.STOPPED
        return Result(step, ending, time.monotonic() - began, last_line(said), kept)


def _ending(step: Step, status: int) -> Ending:
    if status in step.unproved:
        return Ending.UNPROVED
    return Ending.FAILED if status else Ending.PASSED

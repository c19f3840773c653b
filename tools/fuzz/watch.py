"""Watches the process that tries inputs for crashes, hangs and memory growth."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import IO

from tools.fuzz.corpus import keep
from tools.fuzz.current_input import CurrentInput
from tools.fuzz.targets.target import Target
from tools.fuzz.worker import COVERAGE, FOUND, MUTATIONS
from tools.supervised_process import Stop, supervised

#: The arguments that start the process that tries inputs, after the interpreter.
WORKER = ["-P", "-m", "tools.fuzz.worker"]
_EVERY_S = 0.2
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: The time limit for imports and for the first inputs.
_STARTING_S = 120.0
#: Objects that are created once are created within this many inputs.
_WARM_UP = 10_000
#: The memory that Atheris may add. It keeps some hundred bytes of each input that it traces.
_TRACES_BYTES = 4 << 30
_LAST_LINES = 40


class Ending(StrEnum):
    """How a run ended."""

    DONE = "nothing found"
    STOPPED = "stopped, nothing found so far"
    WRONG = "an input that is wrong"
    CRASH = "a crash of the interpreter"
    HANG = "a hang"
    GROWTH = "memory growth"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    cases          the number of inputs that were begun
    growth_bytes   the largest memory growth since the end of the warm-up, in the last process
    kept           the stored input that ended the run; None if nothing was found, or no input was begun
    traceback      the end of the worker's standard error; "" if nothing was found
    """

    ending: Ending
    cases: int
    seconds: float
    growth_bytes: int
    kept: Path | None = None
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run.

    case_s         the time that one input may take, without the time in which it waits for a processor
    growth_bytes   the memory that the process may add after its warm-up
    """

    case_s: float = 5.0
    growth_bytes: int = 64 << 20


def fuzz(
    target: Target,
    engine: str,
    cases: int,
    seed: int,
    limits: Limits = Limits(),
    progress: Callable[[int, float, int], None] = lambda cases, seconds, growth: None,
) -> Outcome:
    """Try `cases` inputs in a process of their own until one is wrong, and return the outcome.

    `progress` is called from time to time with the number of inputs, the seconds, and the memory growth in bytes. A
    wrong input is stored in the corpus. Ctrl-C ends the run with STOPPED.

    Atheris itself keeps memory, which hides a reader that does. Therefore a second process without Atheris tries what
    was found, and inputs made of it: together 10,000 and a tenth of `cases`.
    """
    stages = [(engine, cases, limits)]
    if engine == COVERAGE:
        stages = [
            (COVERAGE, cases, replace(limits, growth_bytes=_TRACES_BYTES)),
            (MUTATIONS, _WARM_UP + cases // 10, limits),
        ]
    with tempfile.TemporaryDirectory(prefix="tidelog-fuzz-") as name, (Path(name) / "errors").open("w+") as errors:
        directory = Path(name)
        current_input = CurrentInput(directory / "current_input")
        begun = time.monotonic()
        for stage, count, bounds in stages:
            command = [sys.executable, *WORKER, target.name, stage, str(count), str(seed), name]
            with supervised(command, Stop(grace_s=0), stdout=subprocess.DEVNULL, stderr=errors) as process:
                ending, growth = _watch(
                    process, current_input, bounds, lambda n, g: progress(n, time.monotonic() - begun, g)
                )
            if ending is not Ending.DONE:
                break
        seconds = time.monotonic() - begun
        if ending in (Ending.DONE, Ending.STOPPED):
            return Outcome(ending, current_input.cases, seconds, growth)
        kept = keep(target, current_input.data, ending.name.lower()) if current_input.cases else None
        return Outcome(ending, current_input.cases, seconds, growth, kept, _tail(errors))


class InputTimer:
    """Measures how long one input has been tried, without the time in which the process waited for a processor."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._busy_s = 0.0
        self._cases = 0
        self._input_s = 0.0

    def seconds(self, now_s: float, cases: int, runnable: bool, busy_s: float) -> float:
        """Return the seconds for which the current input has been tried; 0 if it has changed since the last call.

        cases      the number of inputs begun, which shows whether the input has changed
        runnable   whether the process runs or waits for a processor, so that only its CPU time counts
        busy_s     the CPU time of the process since its start
        """
        passed_s = busy_s - self._busy_s if runnable else now_s - self._now_s
        self._input_s = self._input_s + passed_s if cases == self._cases else 0.0
        self._now_s, self._busy_s, self._cases = now_s, busy_s, cases
        return self._input_s


def _watch(
    process: subprocess.Popen[bytes], current_input: CurrentInput, limits: Limits, progress: Callable[[int, int], None]
) -> tuple[Ending, int]:
    at_first = growth = 0
    before = current_input.cases
    timer = InputTimer(time.monotonic())
    while True:
        try:
            status = process.wait(_EVERY_S)
        except subprocess.TimeoutExpired:
            pass
        except KeyboardInterrupt:
            return Ending.STOPPED, growth
        else:
            return (Ending.DONE if status == 0 else Ending.WRONG if status == FOUND else Ending.CRASH), growth
        cases = current_input.cases
        if cases - before >= _WARM_UP:
            resident = _resident_bytes(process.pid)
            at_first = at_first or resident
            growth = max(growth, resident - at_first)
            if growth > limits.growth_bytes:
                return Ending.GROWTH, growth
        input_s = timer.seconds(time.monotonic(), cases, *_activity(process.pid))
        if input_s > (limits.case_s if cases > before else _STARTING_S):
            # faulthandler answers this signal with a stack trace of the place where the process hangs.
            process.send_signal(signal.SIGABRT)
            process.wait()
            return Ending.HANG, growth
        progress(cases, growth)


def _activity(pid: int) -> tuple[bool, float]:
    """Return whether the process is in state R, and its CPU time in seconds; (False, 0) if it has ended."""
    try:
        # The name of the program stands in parentheses before these fields and may hold any character.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False, 0.0
    return fields[0] == "R", (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _tail(file: IO[str]) -> str:
    file.seek(0)
    return "".join(file.readlines()[-_LAST_LINES:])

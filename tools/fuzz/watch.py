"""Watches the process that tries inputs: whether it ends, hangs or grows."""

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
from tools.fuzz.slate import Slate
from tools.fuzz.targets.target import Target
from tools.fuzz.worker import COVERAGE, FOUND, MUTATIONS
from tools.supervised_process import Stop, supervised

#: How the process that tries inputs is started, without the interpreter.
WORKER = ["-P", "-m", "tools.fuzz.worker"]
_EVERY_S = 0.2
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: Imports, and the first look at what is known.
_STARTING_S = 120.0
#: What is made once is made within so many inputs.
_WARM_UP = 10_000
#: What Atheris may add, which keeps some hundred bytes of each input that it traces.
_TRACES_BYTES = 4 << 30
_LAST_LINES = 40


class Ending(StrEnum):
    """How a run came to its end."""

    DONE = "nothing found"
    STOPPED = "stopped, nothing found so far"
    WRONG = "an input that is wrong"
    CRASH = "a crash of the interpreter"
    HANG = "a hang"
    GROWTH = "memory growth"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`growth_bytes` is counted from the end of the warm-up. `kept`: the input that ended it, `said`: the traceback."""

    ending: Ending
    cases: int
    seconds: float
    growth_bytes: int
    kept: Path | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """
    case_s         what one input may take, while it has a processor or wants none
    growth_bytes   what may be added to what the process has after its warm-up
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
    """Tries so many inputs. `progress` is told from time to time: how many, for how long, how much memory came.

    Whether a reader keeps memory cannot be seen behind what Atheris keeps. So a process without it tries afterwards
    what was found, and a tenth as many inputs made of that.
    """
    stages = [(engine, cases, limits)]
    if engine == COVERAGE:
        stages = [
            (COVERAGE, cases, replace(limits, growth_bytes=_TRACES_BYTES)),
            (MUTATIONS, _WARM_UP + cases // 10, limits),
        ]
    with tempfile.TemporaryDirectory(prefix="tidelog-fuzz-") as name, (Path(name) / "said").open("w+") as said:
        directory = Path(name)
        slate = Slate(directory / "slate")
        begun = time.monotonic()
        for stage, count, bounds in stages:
            command = [sys.executable, *WORKER, target.name, stage, str(count), str(seed), name]
            with supervised(command, Stop(grace_s=0), stdout=subprocess.DEVNULL, stderr=said) as process:
                ending, growth = _watch(process, slate, bounds, lambda n, g: progress(n, time.monotonic() - begun, g))
            if ending is not Ending.DONE:
                break
        seconds = time.monotonic() - begun
        if ending in (Ending.DONE, Ending.STOPPED):
            return Outcome(ending, slate.cases, seconds, growth)
        kept = keep(target, slate.data, ending.name.lower()) if slate.cases else None
        return Outcome(ending, slate.cases, seconds, growth, kept, _tail(said))


class Silence:
    """How long one input has been tried. Whoever could run, and has to leave the processor to others, tries nothing."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._busy_s = 0.0
        self._cases = 0
        self._silent_s = 0.0

    def seconds(self, now_s: float, cases: int, runnable: bool, busy_s: float) -> float:
        """`busy_s`: what the process has had of processors since it began."""
        passed_s = busy_s - self._busy_s if runnable else now_s - self._now_s
        self._silent_s = self._silent_s + passed_s if cases == self._cases else 0.0
        self._now_s, self._busy_s, self._cases = now_s, busy_s, cases
        return self._silent_s


def _watch(
    process: subprocess.Popen[bytes], slate: Slate, limits: Limits, progress: Callable[[int, int], None]
) -> tuple[Ending, int]:
    at_first = growth = 0
    before = slate.cases
    silence = Silence(time.monotonic())
    while True:
        try:
            status = process.wait(_EVERY_S)
        except subprocess.TimeoutExpired:
            pass
        except KeyboardInterrupt:
            return Ending.STOPPED, growth
        else:
            return (Ending.DONE if status == 0 else Ending.WRONG if status == FOUND else Ending.CRASH), growth
        cases = slate.cases
        if cases - before >= _WARM_UP:
            resident = _resident_bytes(process.pid)
            at_first = at_first or resident
            growth = max(growth, resident - at_first)
            if growth > limits.growth_bytes:
                return Ending.GROWTH, growth
        silent_s = silence.seconds(time.monotonic(), cases, *_activity(process.pid))
        if silent_s > (limits.case_s if cases > before else _STARTING_S):
            # Where it hangs, it says itself: faulthandler answers this signal.
            process.send_signal(signal.SIGABRT)
            process.wait()
            return Ending.HANG, growth
        progress(cases, growth)


def _activity(pid: int) -> tuple[bool, float]:
    """Whether it runs or could, and what it has had of processors, in seconds."""
    try:
        # The name of the program stands before these, in brackets, and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False, 0.0
    return fields[0] == "R", (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _tail(said: IO[str]) -> str:
    said.seek(0)
    return "".join(said.readlines()[-_LAST_LINES:])

"""Runs Python commands in a tree within a time limit."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tools.supervised_process import Stop, supervised
from tools.terminal_status.last_line import last_line

#: The time between two looks at the command's output.
_LOOK_S = 0.5

#: Called with the last line of the command's output so far.
Watch = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a command.

    status   None: the command took too long
    busy_s   CPU time of the command and its children; wall-clock time if the command took too long
    """

    status: int | None
    stdout: str
    stderr: str
    seconds: float
    busy_s: float


def run_python(
    tree: Path,
    arguments: Sequence[str],
    *,
    longest_s: float,
    grace_s: float,
    watch: Watch = lambda line: None,
    more: dict[str, str] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Ended:
    """Run Python in `tree` with the modules of `tree`, and return its end and all its output.

    After `longest_s`, or Ctrl-C, the command gets SIGINT, and is killed `grace_s` later. `more` is added to the
    environment.
    """
    # No compiled files are written, because a patch may change a file within one second and keep its size.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)} | (more or {})
    began, busy_s = now(), _busy_s()
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        command, status = [sys.executable, *arguments], None
        with supervised(
            command, Stop(grace_s=grace_s), stdout=stdout, stderr=stderr, cwd=tree, environment=environment
        ) as process:
            while status is None and now() < began + longest_s:
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(min(_LOOK_S, longest_s))
                watch(last_line(stdout))
        seconds = now() - began
        # The CPU time of a command that was ended lacks its children's.
        busy_s = seconds if status is None else _busy_s() - busy_s
        return Ended(status, _all_of(stdout), _all_of(stderr), seconds, busy_s)


def _busy_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _all_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")

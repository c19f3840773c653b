"""Run a command to its end, and return what it printed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tools.bench.results import NotMeasured


def output_of(
    command: Sequence[str | Path],
    what: str,
    *,
    timeout_s: float | None = None,
    environment: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE,
) -> str:
    """Return the command's output. Raise NotMeasured, which names `what`, if the command fails or takes too long."""
    try:
        ended = subprocess.run(
            command, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"{what} took longer than {timeout_s} s") from None
    if ended.returncode:
        raise NotMeasured(f"{what}: {last_line(ended.stderr)}")
    return ended.stdout or ""


def last_line(errors: str) -> str:
    """Return the last line of a command's errors, which says why the command failed."""
    return (errors.strip().splitlines() or ["no message"])[-1]

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
    """Run the command to its end, and return its standard output as text; "" if `stdout` sends it elsewhere.

    Raises NotMeasured, which begins with `what`, if the command fails or takes longer than `timeout_s` (None: no
    limit).
    """
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
    """Return the last line of a command's standard error, which usually says why it failed; "no message" if empty."""
    return (errors.strip().splitlines() or ["no message"])[-1]

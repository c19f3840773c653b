"""Run commands of the system for faults, and explain why one cannot be run."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress

from tidelog.errors import LocalError

_TIMEOUT_S = 30.0


def run(*command: str) -> str:
    """Return the output of the command. Raise LocalError with its error output if the command fails or takes longer
    than 30 s.

    The call blocks.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalError(f"{command[0]}: {error}") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split()) or f"ended with {done.returncode}"
        raise LocalError(f"{' '.join(command)}: {said}")
    return done.stdout


async def run_aside(*command: str) -> str:
    """Run the command on a thread and return its output. Errors are those of `run`.

    A cancelled caller waits for the command's end first, so that its change can be undone.
    """
    work = asyncio.ensure_future(asyncio.to_thread(run, *command))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # marks the exception as retrieved
        raise


def quietly(*command: str) -> tuple[str, ...]:
    """Return a command that runs `command` without output and always succeeds."""
    return ("sh", "-c", '"$@" 2>/dev/null || :', "undo", *command)


def lacking(tools: Iterable[str]) -> str | None:
    """Return why these commands cannot be used here: this process is not root, or some are not installed. None: they
    can.
    """
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return f"needs {', '.join(missing)}, which is not installed" if missing else None

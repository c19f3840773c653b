"""Commands of the system that faults are made with, and why one cannot be run here."""

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
    """What it prints; LocalError with its complaint where it fails. Blocks."""
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
    """The same, off the loop. Who is cancelled meanwhile goes on when it has ended: what it changed can be put back."""
    work = asyncio.ensure_future(asyncio.to_thread(run, *command))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # nobody else asks for it
        raise


def quietly(*command: str) -> tuple[str, ...]:
    """The same command, as one that does no harm where there is nothing to put back."""
    return ("sh", "-c", '"$@" 2>/dev/null || :', "undo", *command)


def lacking(tools: Iterable[str]) -> str | None:
    """Why commands of the system cannot be used here: root's, and these; None: they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return f"needs {', '.join(missing)}, which is not installed" if missing else None

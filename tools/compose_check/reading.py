"""docker-compose.yml as the tools read it that are there: no engine is needed for that."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

_TOOLS = (("docker", "compose"), ("docker-compose",), ("podman-compose",))
_LONGEST_S = 60


def tools() -> list[tuple[str, ...]]:
    """The commands that read compose files on this machine, and say what they make of them: podman-compose 1.0.3, which
    is Debian 12's, runs a file and does not say.
    """
    return [tool for tool in _TOOLS if shutil.which(tool[0]) and _can_read(tool)]


def read(tool: tuple[str, ...]) -> tuple[str, str]:
    """(what it makes of the file, what it complains about: "" where it is clean)"""
    done = _run(*tool, "config")
    complaint = done.stderr.strip()
    return done.stdout, complaint or ("" if done.returncode == 0 else f"it ended with status {done.returncode}")


def _can_read(tool: tuple[str, ...]) -> bool:
    # The version, too: where there is no `docker compose`, its help is docker's own.
    return not any(_run(*tool, *asked).returncode for asked in (("version",), ("config", "--help")))


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_LONGEST_S, check=False)

"""Reads docker-compose.yml with the installed compose tools. No container engine is needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

_TOOLS = (("docker", "compose"), ("docker-compose",), ("podman-compose",))
_LONGEST_S = 60


def tools() -> list[tuple[str, ...]]:
    """Return the installed commands (as words) that can read a compose file and report what they read.

    podman-compose 1.0.3 of Debian 12 is not among them, because it runs a file without reporting it.
    """
    return [tool for tool in _TOOLS if shutil.which(tool[0]) and _can_read(tool)]


def read(tool: tuple[str, ...]) -> tuple[str, str]:
    """Return what "TOOL config" prints for docker-compose.yml, and the tool's complaint.

    The complaint is the tool's standard error or a non-zero status, or "" if there is neither.
    """
    done = _run(*tool, "config")
    complaint = done.stderr.strip()
    return done.stdout, complaint or ("" if done.returncode == 0 else f"it ended with status {done.returncode}")


def _can_read(tool: tuple[str, ...]) -> bool:
    # The version is asked too, because without `docker compose` its help is that of docker.
    return not any(_run(*tool, *asked).returncode for asked in (("version",), ("config", "--help")))


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_LONGEST_S, check=False)

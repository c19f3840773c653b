"""The result of `pip install` for a user who is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNPRIVILEGED = 65534


@pytest.fixture
def anybodys_directory() -> Iterator[Path]:
    """Return a directory that belongs to a user who is not root, even if the tests run as root."""
    with tempfile.TemporaryDirectory(prefix="tidelog wheel ") as name:
        path = Path(name)
        if os.getuid() == 0:
            os.chown(path, UNPRIVILEGED, UNPRIVILEGED)
        yield path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_wheel_runs_a_cluster_for_an_unprivileged_user(anybodys_directory: Path) -> None:
    place = anybodys_directory
    not_root = UNPRIVILEGED if os.getuid() == 0 else None
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "TIDELOG_HOME": str(place / "home"),
        "TIDELOG_PORT": "0",
    }
    environment["LD_LIBRARY_PATH"] = str(place / "python/lib")  # a Python that was built shared and then moved
    environment |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}

    def run(*command: str | Path, stdin: bytes = b"", user: int | None = not_root) -> bytes:
        done = subprocess.run(
            [str(part) for part in command],
            input=stdin,
            capture_output=True,
            cwd=place,
            env=environment,
            user=user,
            group=user,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr.decode()}"
        return done.stdout

    wheels = place / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), str(ROOT)]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = wheels.glob("tidelog-*.whl")
    # The administrator installs the wheel, and another user runs it.
    run(python_for_everybody(place), "-m", "venv", place / "environment", user=None)
    run(place / "environment/bin/python", "-m", "pip", "install", "-q", f"{wheel}[spark]", user=None)
    tidelog = place / "environment/bin/tidelog"
    try:
        assert b"bootstrap servers" in run(tidelog, "up", "--detach")
        run(tidelog, "topic", "create", "t", "--partitions", "2")
        run(tidelog, "produce", "t", stdin=b"one\ntwo\n\xff\x00three\n")
        assert sorted(run(tidelog, "consume", "t").splitlines()) == [b"one", b"two", b"\xff\x00three"]
    finally:
        run(tidelog, "down")


def python_for_everybody(place: Path) -> Path:
    """Copy this Python to a place that the other user can read, because it may be in root's home."""
    here = Path(sys.base_prefix)
    there = place / "python"
    unneeded = shutil.ignore_patterns("test", "tests", "site-packages", "__pycache__", "*.a", "share")
    shutil.copytree(here, there, symlinks=True, ignore=unneeded)
    return there / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"

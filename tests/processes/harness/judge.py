"""Apache Kafka's own dump tool, asked through `scripts/check`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

import pytest

CHECK = Path(__file__).parents[3] / "scripts/check"


def check(*directories: Path) -> subprocess.CompletedProcess[str]:
    """Its verdict; a judge that is missing has not judged, and the test says so."""
    done = subprocess.run(
        [CHECK, *directories],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    return done


def assert_blames(done: subprocess.CompletedProcess[str], path: Path) -> None:
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{path}:" in done.stdout.splitlines()


@contextmanager
def changed(path: Path, entry: Struct, change: Callable[..., tuple[int, ...]]) -> Iterator[None]:
    """Change one entry in the middle of a file for the duration of the block."""
    right = path.read_bytes()
    wrong = bytearray(right)
    position = len(right) // entry.size // 2 * entry.size
    assert position, f"{path} has too few entries to change one in the middle"
    entry.pack_into(wrong, position, *change(*entry.unpack_from(right, position)))
    path.write_bytes(wrong)
    yield
    path.write_bytes(right)

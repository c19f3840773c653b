"""Small disks that fill up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from verify.chaos.faults.disks import fill


@contextmanager
def small_disk_at(path: Path) -> Iterator[Path]:
    """A file system of 16 MB; skips the test where none may be mounted."""
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tidelog-test", path], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Until its end no byte more fits."""
    filler = fill(disk)
    try:
        yield
    finally:
        filler.unlink()

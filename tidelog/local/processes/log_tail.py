"""Finds the error at the end of a log file."""

from __future__ import annotations

import shutil
from pathlib import Path

_TAIL_BYTES = 8_192
_FULL_BYTES = 1 << 20


def last_error_line(*files: Path) -> str:
    """Return the line that best explains why a process ended: the last with an error, else the last complete line.

    Only the last 8 KiB of each file are read, and missing files are skipped. If a file's disk is full, the text says so
    in addition.
    """
    lines = [line for file in files for line in _last_lines(file) if line.strip()]
    errors = [line for line in lines if "rror" in line or "xception" in line]
    complete = [line for line in lines if line.endswith("\n")]
    words = (errors or complete or lines or ["it printed nothing"])[-1].strip()
    for directory in {file.parent for file in files}:
        if _is_full(directory):
            return f"the disk of {directory} is full, which may be the cause; its log ends with: {words}"
    return words


def _is_full(directory: Path) -> bool:
    try:
        return shutil.disk_usage(directory).free < _FULL_BYTES
    except OSError:
        return False


def _last_lines(file: Path) -> list[str]:
    try:
        with file.open("rb") as content:
            content.seek(max(0, file.stat().st_size - _TAIL_BYTES))
            return content.read().decode(errors="replace").splitlines(keepends=True)
    except OSError:
        return []

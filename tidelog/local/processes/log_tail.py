"""The end of a log file."""

from __future__ import annotations

import shutil
from pathlib import Path

_LOOKED_AT_BYTES = 8_192
_FULL_BYTES = 1 << 20


def last_words(*files: Path) -> str:
    """The one line that best tells why a process ended: the last that speaks of an error, else the last."""
    lines = [line for file in files for line in _last_lines(file) if line.strip()]
    telling = [line for line in lines if "rror" in line or "xception" in line]
    whole = [line for line in lines if line.endswith("\n")]
    words = (telling or whole or lines or ["it said nothing"])[-1].strip()
    for directory in {file.parent for file in files}:
        if _is_full(directory):
            return f"the disk of {directory} is full, which may be why; its last words are: {words}"
    return words


def _is_full(directory: Path) -> bool:
    try:
        return shutil.disk_usage(directory).free < _FULL_BYTES
    except OSError:
        return False


def _last_lines(file: Path) -> list[str]:
    try:
        with file.open("rb") as content:
            content.seek(max(0, file.stat().st_size - _LOOKED_AT_BYTES))
            return content.read().decode(errors="replace").splitlines(keepends=True)
    except OSError:
        return []

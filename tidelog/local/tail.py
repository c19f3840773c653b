"""The end of a log file."""

from __future__ import annotations

from pathlib import Path

_LOOKED_AT_BYTES = 8_192


def last_words(*files: Path) -> str:
    """The one line that best tells why a process ended: the last that speaks of an error, else the last."""
    lines = [line.strip() for file in files for line in _last_lines(file) if line.strip()]
    telling = [line for line in lines if "rror" in line or "xception" in line]
    return (telling or lines or ["it said nothing"])[-1]


def _last_lines(file: Path) -> list[str]:
    try:
        with file.open("rb") as content:
            content.seek(max(0, file.stat().st_size - _LOOKED_AT_BYTES))
            return content.read().decode(errors="replace").splitlines()
    except OSError:
        return []

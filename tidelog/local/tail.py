"""The end of a log file."""

from __future__ import annotations

from pathlib import Path


def last_lines(file: Path, size_bytes: int = 8_192) -> list[str]:
    """The lines within the file's last `size_bytes`; none where there is no such file."""
    try:
        with file.open("rb") as content:
            content.seek(max(0, file.stat().st_size - size_bytes))
            return content.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def last_words(*files: Path) -> str:
    """The one line that best tells why a process ended: the last that speaks of an error, else the last."""
    lines = [line.strip() for file in files for line in last_lines(file) if line.strip()]
    telling = [line for line in lines if "rror" in line or "xception" in line]
    return (telling or lines or ["it said nothing"])[-1]

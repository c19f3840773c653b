"""What a broker has said since some moment, in its log and on its way out: by that it is known what it noticed."""

from __future__ import annotations

import re
from pathlib import Path

_LONGEST = 200


class Said:
    """Of one broker, from now on. What it prints stands beside its log."""

    def __init__(self, log: Path) -> None:
        self._sizes = {path: _size(path) for path in (log, log.with_suffix(".out"))}

    def lines(self, pattern: str) -> list[str]:
        """Those in which the pattern is found, without their times. Reads files."""
        wanted = re.compile(pattern)
        return [_without_time(line) for line in self._all() if wanted.search(line)]

    def last(self) -> str:
        """The last that it said, with what it printed after that; empty: nothing."""
        lines = [line for line in self._all() if line.strip()]
        return _without_time(lines[-1]) if lines else ""

    def _all(self) -> list[str]:
        return [line for path, size in self._sizes.items() for line in _since(path, size).splitlines()]


def _without_time(line: str) -> str:
    return re.sub(r"^\S+ \S+ [A-Z]+ \S+: ", "", line.strip())[:_LONGEST]


def _since(path: Path, size: int) -> str:
    try:
        with path.open("rb") as file:
            # A log that is shorter now was begun anew.
            file.seek(size if _size(path) >= size else 0)
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

"""Read what a broker has logged and printed since some time, which shows what it noticed."""

from __future__ import annotations

import re
from pathlib import Path

_LONGEST = 200


class BrokerLogReader:
    """The lines that one broker logs and prints after the construction of this reader. The file with the printed output
    is beside the log file.

    After a rotation, lines may be missing: those of the old log file, and the first ones of a new file that has grown
    longer than the old one was at the construction.
    """

    def __init__(self, log: Path) -> None:
        self._sizes = {path: _size(path) for path in (log, log.with_suffix(".out"))}

    def lines(self, pattern: str) -> list[str]:
        """Return the lines that contain a match of the pattern: first those of the log file, then the printed ones.

        Each line lacks its timestamp, level and logger, and is cut to 200 characters. The call reads files.
        """
        wanted = re.compile(pattern)
        return [_without_time(line) for line in self._all() if wanted.search(line)]

    def last(self) -> str:
        """Return the last printed line, or the last logged one if nothing was printed, or an empty text. The call reads
        files.
        """
        lines = [line for line in self._all() if line.strip()]
        return _without_time(lines[-1]) if lines else ""

    def _all(self) -> list[str]:
        return [line for path, size in self._sizes.items() for line in _since(path, size).splitlines()]


def _without_time(line: str) -> str:
    return re.sub(r"^\S+ \S+ [A-Z]+ \S+: ", "", line.strip())[:_LONGEST]


def _since(path: Path, size: int) -> str:
    try:
        with path.open("rb") as file:
            # A log that is shorter than before has been rotated.
            file.seek(size if _size(path) >= size else 0)
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

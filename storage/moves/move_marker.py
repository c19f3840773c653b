"""`moved-from`: the log directory in which the log of this directory lay before its move.

The file is in a log's directory: one line, the path of the other log directory. It is written and flushed before the
log replaces the one there, and removed after the one there is gone. If a crash leaves both logs, the next start
therefore knows that this one is the later one. In a future log's directory the file means nothing.
"""

from __future__ import annotations

from pathlib import Path

from storage.files import Files

FILE_NAME = "moved-from"


def read(files: Files, log: Path) -> Path | None:
    """Return the log directory that the file names; None if there is no such file."""
    data = files.read(log / FILE_NAME)
    return None if data is None else Path(data.decode("utf-8", "surrogateescape").removesuffix("\n"))


def write(files: Files, log: Path, moved_from: Path) -> None:
    """Write and flush the file. StorageError."""
    files.replace(log / FILE_NAME, f"{moved_from}\n".encode("utf-8", "surrogateescape"))


def remove(files: Files, log: Path) -> None:
    """Remove the file, without a flush: if a power failure restores it, the next start removes it. StorageError."""
    files.remove(log / FILE_NAME)

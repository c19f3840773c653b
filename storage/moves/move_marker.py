"""The marks of moves in the directories of logs, from which a start learns which of several logs is the latest.

`moved-from`: the log directories in which the partition's log lay before its moves to this one. The file has a number,
and a line with the path of each of these directories. It is written and flushed before the log replaces the one in the
last of them, and removed after the logs there are gone. If several logs of the partition are left, the next start
therefore knows which one is the latest: a move counts the number up, and takes over the directories, because an old log
stays in each directory that went offline before it was deleted. In a future log's directory the file means nothing.

`moving-to`: the path of the log directory to which this log is moved. The file is written and flushed before the other
log replaces this one, and removed if the move ends before that. An old log whose directory returns alone therefore
shows that a later log may exist.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from storage.files import Files

FILE_NAME = "moved-from"
TARGET_FILE_NAME = "moving-to"


class MoveMark(NamedTuple):
    """The content of the file.

    number        larger than in the file of each earlier log of the partition
    directories   the absolute paths of the directories in which earlier logs may be left
    """

    number: int = 0
    directories: tuple[Path, ...] = ()

    def after_move(self, source: Path, target: Path) -> MoveMark:
        """Return the mark of a log in `target` that takes the place of a log in `source` with this mark."""
        earlier = (each for each in self.directories if each not in (source, target))
        return MoveMark(self.number + 1, (*earlier, source))


def read(files: Files, log: Path) -> MoveMark:
    """Return what the file says; number 0 without directories if there is no such file or it has no number."""
    number, *paths = (files.read(log / FILE_NAME) or b"").decode("utf-8", "surrogateescape").split("\n")
    if not number.isdecimal():
        return MoveMark()
    return MoveMark(int(number), tuple(Path(each) for each in paths if each))


def write(files: Files, log: Path, mark: MoveMark) -> None:
    """Write and flush the file. StorageError."""
    lines = (str(mark.number), *map(str, mark.directories))
    files.replace(log / FILE_NAME, "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))


def remove(files: Files, log: Path) -> None:
    """Remove the file, without a flush: if a power failure restores it, the next start removes it. StorageError.

    A move flushes the removal before it marks the next log, because that log's number may be the same.
    """
    files.remove(log / FILE_NAME)


def read_target(files: Files, log: Path) -> Path | None:
    """Return the log directory to which the log is moved, or was moved; None if no move has come that far."""
    path = files.read(log / TARGET_FILE_NAME)
    return None if path is None else Path(path.decode("utf-8", "surrogateescape").removesuffix("\n"))


def write_target(files: Files, log: Path, target: Path) -> None:
    """Write and flush the path. StorageError."""
    files.replace(log / TARGET_FILE_NAME, f"{target}\n".encode("utf-8", "surrogateescape"))


def remove_target(files: Files, log: Path) -> None:
    """Remove the path, without a flush: if a power failure restores it, the next start removes it. StorageError."""
    files.remove(log / TARGET_FILE_NAME)

"""Reads a file that is never written and may be damaged."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Any

from storage.files import read_at
from tidelog.errors import StorageError

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE = 4096


class DamagedFileReader:
    """Reads a file through a chunk in memory. `size` is that at opening, because a broker may append meanwhile.

    OSError, with the path, if the file cannot be read; StorageError if it is not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without O_NONBLOCK a pipe would block
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise StorageError(f"{path}: not a regular file")
        self.size = status.st_size
        self._zeros_from: int | None = None
        self._chunk = memoryview(b"")
        self._start = 0

    def __enter__(self) -> DamagedFileReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def read(self, position: int, count: int) -> memoryview:
        """Return `count` bytes from `position` on; fewer only at the end of the file."""
        at = position - self._start
        if at < 0 or at + count > len(self._chunk):
            wanted = min(max(count, _CHUNK_BYTES), self.size - position)
            self._chunk = memoryview(self._pread(wanted, position) if wanted > 0 else b"")
            self._start, at = position, 0
        return self._chunk[at : at + count]

    def _pread(self, count: int, position: int) -> bytes:
        try:
            return read_at(self._fd, count, position)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def pieces(self, position: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes from `position` to `end`, or to the end of the file, a chunk at a time."""
        while position < end and (piece := self.read(position, min(_CHUNK_BYTES, end - position))):
            yield piece
            position += len(piece)

    def zeros_from(self, position: int) -> bool:
        """Return whether the file has only zeros from `position` on, or ends there."""
        if self._zeros_from is None:
            self._zeros_from = self._end_of_content()
        return position >= self._zeros_from

    def _end_of_content(self) -> int:
        """Return where the trailing zeros begin. Searched once, from the end, because a file may be full of zeros."""
        end = self.size
        while end:
            start = max(end - _CHUNK_BYTES, 0)
            if content := self._pread(end - start, start).rstrip(b"\0"):
                return start + len(content)
            end = start
        return 0

    def entries(self, layout: Struct, position: int = 0) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield (position, fields) of each whole entry of this layout from `position` to the end of the file."""
        while len(entry := self.read(position, layout.size)) == layout.size:
            yield position, layout.unpack(entry)
            position += layout.size

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (position, text with its newline) of each line. A line that is too long comes in parts."""
        position = 0
        while part := bytes(self.read(position, _LONGEST_LINE)):
            line = part[: part.find(b"\n") + 1] or part
            yield position, line.decode("utf-8", "backslashreplace")
            position += len(line)

"""A file that is read and never written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Any

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE = 4096


class Source:
    """Reads forward from a chunk that it holds. The size is that of the moment of opening: a broker may go on writing.

    OSError, with the path, where the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size
        self._chunk = memoryview(b"")
        self._start = 0

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def read(self, position: int, count: int) -> memoryview:
        """Up to `count` bytes; fewer only at the end of the file."""
        at = position - self._start
        if at < 0 or at + count > len(self._chunk):
            wanted = min(max(count, _CHUNK_BYTES), self.size - position)
            try:
                self._chunk = memoryview(os.pread(self._fd, wanted, position)) if wanted > 0 else memoryview(b"")
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            self._start, at = position, 0
        return self._chunk[at : at + count]

    def pieces(self, position: int, end: int) -> Iterator[memoryview]:
        """All bytes from `position` to `end`, a chunk at a time."""
        while position < end and (piece := self.read(position, min(_CHUNK_BYTES, end - position))):
            yield piece
            position += len(piece)

    def zeros_from(self, position: int) -> bool:
        """Whether nothing but zeros follows."""
        return not any(any(piece) for piece in self.pieces(position, self.size))

    def entries(self, layout: Struct, position: int = 0) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """(position, fields) of each whole entry of this layout."""
        while len(entry := self.read(position, layout.size)) == layout.size:
            yield position, layout.unpack(entry)
            position += layout.size

    def lines(self) -> Iterator[tuple[int, str]]:
        """(position, text with its newline) of each line; one that is too long for a line comes in parts."""
        position = 0
        while part := bytes(self.read(position, _LONGEST_LINE)):
            line = part[: part.find(b"\n") + 1] or part
            yield position, line.decode("utf-8", "backslashreplace")
            position += len(line)

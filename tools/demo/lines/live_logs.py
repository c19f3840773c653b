"""Follows log files that other processes write, across their rotation."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from tools.demo.lines.line_splitter import Line, LineSplitter, TooLong
from tools.demo.lines.line_time import LineTimes

_POLL_S = 0.1
_CHUNK_BYTES = 1 << 16


class LiveLogs:
    """Yields the lines of several growing files, each from its beginning, until `stop`.

    Lines that were written before `stop` are still read. An incomplete line at the end of a file is ignored,
    but one before a rotation is joined with the first line of the new file.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        """Follow `files`, given by the name under which their lines are counted; a file may be created later."""
        self._followers = [_Follower(name, path) for name, path in files.items()]
        self._stopped = threading.Event()

    @property
    def too_long(self) -> list[TooLong]:
        return [place for follower in self._followers for place in follower.splitter.too_long]

    @property
    def too_long_count(self) -> int:
        return sum(follower.splitter.too_long_count for follower in self._followers)

    def stop(self) -> None:
        self._stopped.set()

    def lines(self) -> Iterator[Line]:
        """Yield the lines of all files as they are written, until `stop`; each file keeps its own order. Call once."""
        last = False
        while True:
            for follower in self._followers:
                yield from follower.new_lines()
            if last:
                return
            last = self._stopped.wait(_POLL_S)


class _Follower:
    def __init__(self, name: str, path: Path) -> None:
        self.splitter = LineSplitter(name)
        self._name = name
        self._path = path
        self._times = LineTimes()
        self._stream: BinaryIO | None = None

    def new_lines(self) -> Iterator[Line]:
        while True:
            self._stream = self._stream or _opened(self._path)
            if self._stream is None:
                return
            # this check comes first, because everything written before a rotation is in the old file
            rotated = not _is_file_at(self._stream, self._path)
            while chunk := self._stream.read(_CHUNK_BYTES):
                now_ms = time.time_ns() // 1_000_000
                for value in self.splitter.split(chunk):
                    yield Line(self._name, value, self._times.timestamp_ms(value, now_ms))
            if not rotated:
                return
            self._stream.close()
            self._stream = None


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb", buffering=0)
    except OSError:
        return None


def _is_file_at(stream: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except OSError:
        return False

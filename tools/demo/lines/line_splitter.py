"""Cuts lines of bytes out of chunks of any size, in bounded memory."""

from __future__ import annotations

from typing import NamedTuple

#: A line of this size fits into a batch under the topic's `max.message.bytes`, with headers and the source's name.
MAX_LINE_BYTES = 1_000_000
_PLACES_KEPT = 20


class Line(NamedTuple):
    """One line without its newline. All other bytes are kept: carriage returns, NUL, broken UTF-8."""

    source: str
    value: bytes
    stamp_ms: int | None  # the line's own time; None if the time of arrival must replace it


class TooLong(NamedTuple):
    """The place and the size of a line that was dropped because no record can hold it; lines are counted from 1."""

    source: str
    line_number: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.source}, line {self.line_number}: {self.size_bytes:,} bytes"


class LineSplitter:
    """Turns chunks into whole lines. A line over the limit is dropped while it arrives, and its place is noted.

    too_long_count   the number of dropped lines
    too_long         the places of the first 20 of them
    """

    def __init__(self, source: str, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.too_long_count = 0
        self.too_long: list[TooLong] = []
        self._source = source
        self._limit = max_line_bytes
        self._begun = bytearray()  # of the line that is still open
        self._dropped_bytes = 0  # > 0: the open line is over the limit
        self._line_number = 0

    def split(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, in order, without newlines; keep the rest for the next call."""
        first, *more = chunk.split(b"\n")
        self._add(first)
        if not more:
            return []
        lines = self._complete()
        last = more.pop()
        if not more or max(map(len, more)) <= self._limit:
            self._line_number += len(more)
            lines += more
        else:
            for piece in more:
                self._add(piece)
                lines += self._complete()
        self._add(last)
        return lines

    def end(self) -> list[bytes]:
        """Return the last line if it has no newline, else nothing. Call once, after the last chunk."""
        return self._complete() if self._begun or self._dropped_bytes else []

    def _add(self, piece: bytes) -> None:
        if self._dropped_bytes or len(self._begun) + len(piece) > self._limit:
            self._dropped_bytes += len(self._begun) + len(piece)
            self._begun.clear()
        else:
            self._begun += piece

    def _complete(self) -> list[bytes]:
        self._line_number += 1
        if self._dropped_bytes:
            self.too_long_count += 1
            if len(self.too_long) < _PLACES_KEPT:
                self.too_long.append(TooLong(self._source, self._line_number, self._dropped_bytes))
            self._dropped_bytes = 0
            return []
        line = bytes(self._begun)
        self._begun.clear()
        return [line]

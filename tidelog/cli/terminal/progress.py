"""Shows the progress of a command in one line on standard error, if standard error is a terminal."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Self

from tidelog.clock import Clock, SystemClock
from tidelog.quantities import count_of, format_rate, format_size, format_size_rate

_EVERY_MS = 200


class Progress:
    """Counts records and bytes, and shows them and their rates in a line that is erased at the end of the block.

    shown   None: only if standard error is a terminal
    verb    what happened to the records, such as "read"
    """

    def __init__(self, verb: str, *, shown: bool | None = None, clock: Clock | None = None) -> None:
        self.records = 0
        self.size_bytes = 0
        self._verb = verb
        self._clock = clock or SystemClock()
        self._shown = is_terminal() if shown is None else shown
        self._started_ms = self._due_ms = self._clock.monotonic_ms()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def advance(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes
        if self._shown and self._clock.monotonic_ms() >= self._due_ms:
            self._show()

    def _show(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._due_ms = now_ms + _EVERY_MS
        took_ms = now_ms - self._started_ms
        line = (
            f"{count_of(self.records, 'record')} {self._verb}, {format_size(self.size_bytes)}"
            f" ({format_rate(self.records, took_ms, 'record')}, {format_size_rate(self.size_bytes, took_ms)})"
        )
        sys.stderr.write("\r\x1b[K" + line[: terminal_width() - 1])  # a line that wraps could not be erased
        sys.stderr.flush()


def terminal_width() -> int:
    """Return the number of columns of standard error's terminal; sys.maxsize if it is unknown or no terminal."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or sys.maxsize
    except (OSError, ValueError):
        return sys.maxsize


def is_terminal() -> bool:
    """Return whether standard error is a terminal, so that a line there can be overwritten."""
    return sys.stderr is not None and sys.stderr.isatty()

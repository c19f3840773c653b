"""Shows that a command waits: on a terminal in an updated line, else once in a line on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread, Timer
from types import TracebackType
from typing import Self

import click

from tidelog.cli.terminal.progress import is_terminal, terminal_width
from tidelog.clock import SystemClock
from tidelog.quantities import format_duration

EVERY_S = 1.0
#: How long a command waits before `print_if_slow` says so.
_QUIET_S = 2.0


class Waiting:
    """Shows `action` and the elapsed time in a line on a terminal while the block runs, and erases the line at the end.

    Nothing is shown if standard error is no terminal, or if the block ends within `every_s` seconds. The block itself
    must not write to the terminal.
    """

    def __init__(self, action: str = "waiting for the cluster", *, every_s: float = EVERY_S) -> None:
        self._action = action
        self._every_s = every_s
        self._over = Event()
        self._thread = Thread(target=self._show, name="tidelog-waiting", daemon=True) if is_terminal() else None

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        clock = SystemClock()
        began_ms = clock.monotonic_ms()
        is_shown = False
        while not self._over.wait(self._every_s):
            line = f"{self._action}, {format_duration(clock.monotonic_ms() - began_ms)} …"
            _write("\r\x1b[K" + line[: terminal_width() - 1])  # a line that wraps could not be erased
            is_shown = True
        if is_shown:
            _write("\r\x1b[K")


@contextmanager
def print_if_slow(action: str, timeout: float) -> Iterator[None]:
    """Print one line on standard error if the block takes longer than two seconds: that the command waits for `action`.

    `timeout` (seconds) is only named in the line, as the longest time.
    """
    erase = "\r\x1b[K" if is_terminal() else ""  # the line of `Waiting`
    line = f"{erase}waiting for {action}, up to {format_duration(timeout * 1000)} in all"
    timer = Timer(_QUIET_S, click.echo, (line,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()

"""Handles Ctrl-C, and defers it where an exception would leave a process behind.

An exception between the start of a process and the moment when its pid is stored would leave the process behind.
Therefore processes are started inside `uninterrupted`, and the signal takes effect right afterwards.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Interruption:
    def __init__(self) -> None:
        self.deferred = 0
        self.pending = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.deferred:
            self.pending = True
        else:
            raise KeyboardInterrupt


_state = _Interruption()


def install() -> None:
    """Make Ctrl-C (SIGINT), SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread, unless deferred."""
    for number in _SIGNALS:
        signal.signal(number, _state.handle)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Run the block to its end, then raise KeyboardInterrupt if a signal came meanwhile.

    KeyboardInterrupt replaces an error of the block. A terminal's Ctrl-C may also kill the process that is being
    started, and the block's error is then only a consequence.
    """
    _state.deferred += 1
    try:
        yield
    finally:
        _state.deferred -= 1
        if _state.pending and not _state.deferred:
            _state.pending = False
            raise KeyboardInterrupt


def ignore_signals() -> None:
    """Raise no KeyboardInterrupt from now on, because the rest is bounded in time and ends all processes."""
    _state.deferred += 1

"""Ctrl-C, and what must not be cut short by it.

An exception between the birth of a process and the note of its pid would leave the process behind, so whoever starts
one does it `uninterrupted`; the signal is acted upon right afterwards.
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
    """Ctrl-C, SIGTERM and a terminal that goes away raise KeyboardInterrupt in the main thread."""
    for number in _SIGNALS:
        signal.signal(number, _state.handle)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """The block runs to its end; an interruption that came meanwhile is raised then.

    It takes the place of an error: a terminal's Ctrl-C may also hit a process that is just being born, and that
    one's death is what the block then complains of.
    """
    _state.deferred += 1
    try:
        yield
    finally:
        _state.deferred -= 1
        if _state.pending and not _state.deferred:
            _state.pending = False
            raise KeyboardInterrupt


def no_more() -> None:
    """What is left to do is bounded, and is what leaves no process behind: nothing interrupts it."""
    _state.deferred += 1

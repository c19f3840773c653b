"""Turns signals into KeyboardInterrupt, so that a command cleans up as after Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """Raise KeyboardInterrupt in the block at the first of the signals; afterwards restore their handlers.

    SIGHUP stays ignored if it is ignored, as under nohup. After the first signal, all of them are ignored until the
    process ends. Cleaning up has its own deadline, and a program such as `timeout` may send its signal a second time at
    any moment.
    """
    came = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        for each in wanted:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    wanted = [each for each in numbers if each != signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items() if not came else ():
            signal.signal(number, handler)

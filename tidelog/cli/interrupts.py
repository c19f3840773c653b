"""Signals that end a command as Ctrl-C does, with what it has to tidy up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """KeyboardInterrupt for each of them; of SIGHUP not where it is ignored, since that is what nohup is for."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    wanted = [each for each in numbers if each != signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

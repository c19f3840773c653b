"""Signals that end a command as Ctrl-C does, with what it has to tidy up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """KeyboardInterrupt for the first of them that comes; of SIGHUP not where it is ignored, as by nohup.

    More of them change nothing, to the end of the process: tidying up has a deadline, and `timeout` for one sends its
    signal twice, the second as late as it likes.
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

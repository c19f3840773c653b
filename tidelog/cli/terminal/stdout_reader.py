"""Whoever reads our standard output."""

from __future__ import annotations

import select
import sys


def stop_if_nobody_reads() -> None:
    """BrokenPipeError where `| head -1` has gone, long before the next write would tell us so."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError

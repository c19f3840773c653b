"""Checks that standard output still has a reader."""

from __future__ import annotations

import select
import sys


def stop_if_stdout_is_closed() -> None:
    """Raise BrokenPipeError if the reader of standard output (such as `head -1`) has ended.

    A command that waits for records would notice the missing reader only at its next write.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError

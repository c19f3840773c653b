"""Ports for the processes of tests."""

from __future__ import annotations

import atexit
from contextlib import ExitStack

from tidelog.local.processes.ports import choose_port

_HELD = ExitStack()
atexit.register(_HELD.close)


def reserved_port() -> int:
    """Return a free port. No other test chooses it until this process ends, because tests run at the same time."""
    return choose_port(_HELD)

"""Ends a broker that gets no memory: what failed in the middle may be half done, and never answered; others can take
over.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

#: The exit status of a process that got no memory.
OUT_OF_MEMORY_EXIT_STATUS = 71


def guard_memory(loop: asyncio.AbstractEventLoop, on_none: Callable[[], None]) -> None:
    """Calls `on_none` for a callback or a task of the loop that ended for want of memory, a request's among them."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # Libraries say it by the number: those of the system, and ZeroMQ.
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            on_none()
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


def end_process() -> None:
    """Nothing is flushed, as in a crash: that would take memory too."""
    log.critical("no memory is left: ending the process")
    os._exit(OUT_OF_MEMORY_EXIT_STATUS)

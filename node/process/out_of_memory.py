"""End a broker that runs out of memory.

A failed callback may have done half of its work and may never answer its request, so that the process ends and other
brokers take over.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

#: The exit status of a process that ran out of memory.
OUT_OF_MEMORY_EXIT_STATUS = 71


def guard_memory(loop: asyncio.AbstractEventLoop, on_none: Callable[[], None]) -> None:
    """Set an exception handler of the loop that calls `on_none` if an unhandled error says that no memory is left."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # System calls and ZeroMQ report a lack of memory by an error number.
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            on_none()
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


def end_process() -> None:
    """End the process at once, with OUT_OF_MEMORY_EXIT_STATUS. No flush is made, because it would need memory."""
    log.critical("no memory is left: ending the process")
    os._exit(OUT_OF_MEMORY_EXIT_STATUS)

"""End a process whose event loop hangs, because kazoo's own thread would keep its ZooKeeper session alive for ever."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

_TICKS = 10
#: The exit status of a process that its watchdog has ended.
HUNG_EXIT_STATUS = 70


class Guard(Protocol):
    """Ends the process if its event loop hangs."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class Watchdog:
    """A thread that calls `on_hung` once, when the event loop has run nothing for about `timeout_ms`.

    The thread counts its own ticks instead of time. A process that was stopped as a whole (SIGSTOP) is therefore not
    taken for hung: such a process must resume and learn that its session has expired.
    """

    def __init__(self, timeout_ms: int, on_hung: Callable[[], None]) -> None:
        self._tick_s = timeout_ms / 1000 / _TICKS
        self._on_hung = on_hung
        self._missed = 0
        self._stopped = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start the thread. The watched loop is the one on which this object was created."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, which ends within a tick; return at once."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._tick_s):
            self._missed += 1
            if self._missed > _TICKS:
                self._on_hung()
                return
            try:
                self._loop.call_soon_threadsafe(self._turned)
            except RuntimeError:
                return  # the loop is closed

    def _turned(self) -> None:
        self._missed = 0


def end_process() -> None:
    """End the process at once and without a flush, with HUNG_EXIT_STATUS, so that other brokers can take over."""
    log.critical("the event loop has been blocked for a whole session timeout: ending the process")
    os._exit(HUNG_EXIT_STATUS)

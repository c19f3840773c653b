"""Ends a process whose loop hangs: kazoo pings from its own thread, and would keep such a broker's session for ever."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

_TICKS = 10
#: The exit status of a process whose watchdog has bitten.
HUNG_EXIT_STATUS = 70


class Guard(Protocol):
    """Ends the process where its loop hangs."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class Watchdog:
    """A thread that calls `on_hung` when the loop has not turned for `timeout_ms`.

    It counts its own ticks, not time: a process that was stopped as a whole (SIGSTOP) lost its session rightly,
    and must come back and find out, rather than be taken for hung.
    """

    def __init__(self, timeout_ms: int, on_hung: Callable[[], None]) -> None:
        self._tick_s = timeout_ms / 1000 / _TICKS
        self._on_hung = on_hung
        self._missed = 0
        self._stopped = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """From the loop that is to be watched."""
        self._thread.start()

    def stop(self) -> None:
        """Returns at once; the thread ends within a tick."""
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
    """What a broker does when it hangs: others must be able to take over. Nothing is flushed, as in a crash."""
    log.critical("the event loop has not turned for a whole session timeout: ending the process")
    os._exit(HUNG_EXIT_STATUS)

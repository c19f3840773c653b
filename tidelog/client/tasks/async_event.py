"""Let tasks wait for an event with a time limit, at the cost of one future and one timer."""

from __future__ import annotations

import asyncio


class Signal:
    """Wakes the one task that waits. If no task waits, the signal is kept for the next wait."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self, _: object = None) -> None:
        """Wake the waiting task, or let the next `wait` return at once. The parameter allows use as a callback."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout_ms: int | None = None) -> None:
        """Wait until the signal, or until the timeout (None: no limit), and reset the signal. One task may wait."""
        if not self._is_set:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = None if timeout_ms is None else loop.call_later(timeout_ms / 1000, self.set)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        self._is_set = False


class Flag:
    """Wakes all waiting tasks and stays set until `clear`, like `asyncio.Event`, but with a time limit.

    `asyncio.wait_for` would create a task for each wait, and `asyncio.timeout` would end it by a cancellation.
    """

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: dict[asyncio.Future[bool], None] = {}  # ordered by the start of the wait

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for waiter in self._waiters:
            _end(waiter, True)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the flag is set (return True), or until the timeout (return False; None: no limit)."""
        if self._is_set:
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiters[waiter] = None
        timer = None if timeout_s is None else loop.call_later(timeout_s, _end, waiter, False)
        try:
            return await waiter
        finally:
            del self._waiters[waiter]
            if timer is not None:
                timer.cancel()


def _end(waiter: asyncio.Future[bool], outcome: bool) -> None:
    if not waiter.done():
        waiter.set_result(outcome)

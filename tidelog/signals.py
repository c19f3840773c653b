"""How a task sleeps until there is something to do, or until a time has come."""

from __future__ import annotations

import asyncio


class Signal:
    """Wakes the one task that waits; a signal that nobody waits for is kept for the next."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self, _: object = None) -> None:
        """Wake the waiter (as a callback too)."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout_ms: int | None = None) -> None:
        """Until the signal, or the time is over."""
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

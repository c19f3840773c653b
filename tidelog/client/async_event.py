"""How tasks sleep until there is something to do, or until a time has come, at the cost of a future and a timer."""

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


class Flag:
    """Wakes all that wait, and whoever comes later finds it set: `asyncio.Event` with a time limit.

    With `asyncio.wait_for` each wait would be a task, with `asyncio.timeout` each end of one a cancellation.
    """

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: dict[asyncio.Future[bool], None] = {}  # in their order

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for waiter in self._waiters:
            _end(waiter, True)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it was set before the time was over."""
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

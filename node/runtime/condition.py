"""Waiting for something that several events together bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Condition:
    """Wakes those who wait for a condition each time something happened that may have met it."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}  # woken in their order

    def made(self) -> None:
        """Something happened: every condition is looked at again."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Whether the condition held before the time was over."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not condition():
                    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiters[waiter] = None
                    try:
                        await waiter
                    finally:
                        self._waiters.pop(waiter, None)
        except TimeoutError:
            return condition()
        return True

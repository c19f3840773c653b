"""Wait for a condition that several events together bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Condition:
    """Lets tasks wait for a condition; `notify` wakes them so that each checks its condition again."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}  # in the order in which they are woken

    def notify(self) -> None:
        """Wake all waiters, because an event may have met their conditions."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until the condition holds, and return whether it did before the timeout."""
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

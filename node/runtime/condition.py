"""Wait for a condition that several events together bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TypeVar

T = TypeVar("T")


class Condition:
    """Lets tasks wait for a condition; `notify` wakes them so that each checks its condition again."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}  # in the order in which they are woken

    def notify(self) -> None:
        """Have all waiters check their conditions in the next turn of the loop, because an event may have met them."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until the condition holds or the timeout is over, and return whether the condition holds then.

        The condition is checked at once, after each `notify`, and at the timeout.
        """
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


def holds_for_each(items: Collection[T], condition: Callable[[T], bool]) -> Callable[[], bool]:
    """Return a function that checks whether the condition holds for each item, and that is cheap to call often.

    A call looks only at items for which the condition did not hold before, and stops at the first for which it still
    does not hold. Before the function returns True, it looks at all items again, because the condition may have ceased
    to hold for some.
    """
    left = list(items)

    def check() -> bool:
        while left and condition(left[-1]):
            left.pop()
        if not left:
            left.extend(item for item in items if not condition(item))
        return not left

    return check

"""An event loop whose time jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.EpollSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("every task waits for something that will never come")
        self.loop.now += max(timeout, 1e-6)  # less than a float can add would stop the time
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`now` is in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        selector = _JumpingSelector()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self.now


class VirtualClock:
    """The clock that goes with the running VirtualLoop."""

    EPOCH_MS = 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def now_ms(self) -> int:
        return self.EPOCH_MS + self.monotonic_ms()


def run_virtually(story: Coroutine[Any, Any, T]) -> T:
    """Run it to its end; its hours take milliseconds."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(story, 24 * 3600))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

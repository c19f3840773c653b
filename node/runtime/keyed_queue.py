"""Queues of coroutines, one queue per key; the work of one key runs in order, one item after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class KeyedQueue(Generic[K]):
    """The queues that are not empty. `held_bytes` is the sum of `size_bytes` of all work that has not ended."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._last: dict[K, asyncio.Task[Any]] = {}

    def __contains__(self, key: K) -> bool:
        """Return whether work of this key is unfinished, so that new work of the key must queue behind it."""
        return key in self._last

    def submit(self, key: K, size_bytes: int, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Return a task that runs the work once all earlier work of the key has ended, even with an error."""
        task = asyncio.get_running_loop().create_task(_after(self._last.get(key), work))
        self._last[key] = task
        self.held_bytes += size_bytes

        def leave(done: asyncio.Task[T]) -> None:
            self.held_bytes -= size_bytes
            if self._last.get(key) is done:
                del self._last[key]

        task.add_done_callback(leave)
        return task


async def _after(before: asyncio.Task[Any] | None, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    if before is not None:
        await asyncio.wait([before])
    return await work()

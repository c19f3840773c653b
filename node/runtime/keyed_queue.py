"""Work that takes turns: in a line, which there is one of for each key, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class KeyedQueue(Generic[K]):
    """The lines in which somebody stands. `held_bytes` is what the work in all of them holds."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._last: dict[K, asyncio.Task[Any]] = {}

    def __contains__(self, key: K) -> bool:
        """Whether somebody has not been served yet, whom nobody may overtake."""
        return key in self._last

    def submit(self, key: K, size_bytes: int, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Begins the work once all that joined this line before is done, however it ended."""
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

"""When which group has something to do: one heap for all groups, and no task for any."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    """An entry may come earlier than its owner has something to do, never later: a deadline that was put off is found
    out when the old one is due."""

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def set(self, key: K, deadline_ms: int | None) -> bool:
        """The key is due then, or earlier if that stands already; None: nothing new. True where it comes first."""
        if deadline_ms is None or self._due.get(key, deadline_ms + 1) <= deadline_ms:
            return False
        self._due[key] = deadline_ms
        self._count += 1
        heapq.heappush(self._heap, (deadline_ms, self._count, key))
        return self._heap[0][2] is key

    def take_due(self, now_ms: int) -> list[K]:
        """Those whose time has come, which have none from now on."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == deadline_ms:
                del self._due[key]
                due.append(key)
        return due

    def drop(self, key: K) -> None:
        """It has nothing to do any more."""
        self._due.pop(key, None)

    def next_deadline_ms(self) -> int | None:
        """When `take_due` has something to say at the earliest."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

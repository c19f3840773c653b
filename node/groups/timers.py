"""The deadlines of all groups in one heap, so that no group needs a task of its own."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    """Deadlines by key. An entry may be due earlier than its key's deadline, but never later.

    If a deadline is postponed, its old entry stays in the heap. The owner sets the new deadline when the old entry is
    due.
    """

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def set(self, key: K, deadline_ms: int | None) -> bool:
        """Add a deadline for the key, unless it has an earlier one; None adds nothing.

        Return whether the key's deadline is now the first of all.
        """
        if deadline_ms is None or self._due.get(key, deadline_ms + 1) <= deadline_ms:
            return False
        self._due[key] = deadline_ms
        self._count += 1
        heapq.heappush(self._heap, (deadline_ms, self._count, key))
        return self._heap[0][2] is key

    def take_due(self, now_ms: int) -> list[K]:
        """Remove and return the keys whose deadlines are at or before `now_ms`, the earliest first."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == deadline_ms:
                del self._due[key]
                due.append(key)
        return due

    def drop(self, key: K) -> None:
        """Remove the key's deadline, if it has one."""
        self._due.pop(key, None)

    def next_deadline_ms(self) -> int | None:
        """Return the first deadline, or None if there is none."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

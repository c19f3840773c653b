"""A purgatory (Kafka's DelayedOperationPurgatory): operations wait for a condition or for their deadline.

An operation watches keys. The code that changes the state behind a key calls `check_and_complete(key)`. The code that
owns the clock calls `expire(now_ms)`. An operation completes exactly once: its condition has come true, or the caller
has forced it, or it has expired. An operation whose answer is not needed any more is dropped instead. From then on
only the heap of deadlines refers to it. If a check makes a deadline earlier, the heap keeps the later one too. The heap
is rebuilt before more than half of its entries are such later deadlines, or completed operations.
"""

from __future__ import annotations

import heapq
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

from node.runtime.latency_histogram import LatencyHistogram

K = TypeVar("K", bound=Hashable)

#: Below this many entries the heap is never worth rebuilding.
_SMALL_HEAP = 64


class DelayedOperation(ABC):
    """An operation that completes later.

    deadline_ms   monotonic; from then on `expire` completes the operation
    completed     whether the operation has completed, has expired or was dropped; set once, only by the purgatory
    begun_ns      when the operation began to wait; set by the purgatory
    checked_at    the number of changes before its last check, counted and set by GradualChecks
    """

    __slots__ = ("begun_ns", "checked_at", "completed", "deadline_ms")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.completed = False
        self.begun_ns = 0
        self.checked_at = 0

    @abstractmethod
    def is_satisfied(self) -> bool:
        """Return whether the condition has come true. Must have no effects outside this operation.

        An unsatisfied operation may make its own `deadline_ms` earlier, and must never make it later.
        """

    @abstractmethod
    def on_complete(self) -> None:
        """Answer with the current state. Called when the operation is satisfied or forced, and by `on_expiration`."""

    def on_expiration(self) -> None:
        """Answer that the deadline has passed. Override this if the answer of `on_complete` would be wrong then."""
        self.on_complete()


Op = TypeVar("Op", bound=DelayedOperation)


class Purgatory(Generic[K, Op]):
    """The waiting operations by the keys that they watch, at most `capacity` of them.

    If the purgatory is full, a new operation expires at once: an early answer is better than an unbounded queue.

    waits        a histogram of how long the operations waited that have completed or expired, measured by `now_ns`
    expired      the number of operations whose deadline has passed while they waited
    on_earlier   called when an operation gets the earliest deadline of all
    """

    def __init__(
        self,
        capacity: int = 100_000,
        now_ns: Callable[[], int] = lambda: 0,
        on_earlier: Callable[[], None] = lambda: None,
    ) -> None:
        self.waits = LatencyHistogram()
        self.expired = 0
        self._now_ns = now_ns
        self._on_earlier = on_earlier
        self._capacity = capacity
        self._watchers: dict[K, dict[Op, None]] = {}
        self._keys: dict[Op, Collection[K]] = {}
        self._deadlines: list[tuple[int, int, Op]] = []
        self._pushed = 0

    def __len__(self) -> int:
        """Return the number of waiting operations."""
        return len(self._keys)

    def try_complete_else_watch(self, operation: Op, keys: Collection[K]) -> bool:
        """Complete the operation and return True if its condition holds; else let it watch `keys` and return False.

        If the purgatory is full, the operation expires at once, and the result is True.
        """
        if operation.is_satisfied():
            self._finish(operation, operation.on_complete)
            return True
        if len(self._keys) >= self._capacity:
            self._finish(operation, operation.on_expiration)
            return True
        self._keys[operation] = keys
        operation.begun_ns = self._now_ns()
        for key in keys:
            self._watchers.setdefault(key, {})[operation] = None
        self._push_deadline(operation)
        return False

    def check_and_complete(self, *keys: K) -> int:
        """Complete the operations that watch any of `keys` and whose condition has come true. Return their number.

        Each operation is checked once, because a request may wait for thousands of keys.
        """
        watching = dict.fromkeys(operation for key in keys for operation in self._watchers.get(key, ()))
        completed = 0
        for operation in watching:
            completed += self.check(operation)
        return completed

    def operations(self, key: K) -> list[Op]:
        """Return the operations that watch `key`, in the order of their arrival."""
        return list(self._watchers.get(key, ()))

    def check(self, operation: Op) -> bool:
        """Complete one operation if its condition has come true. Return False if not, or if it does not wait here."""
        if operation not in self._keys:
            return False
        before_ms = operation.deadline_ms
        if not operation.is_satisfied():
            if operation.deadline_ms < before_ms:
                self._push_deadline(operation)
            return False
        self._finish(operation, operation.on_complete)
        return True

    def force_complete(self, key: K) -> int:
        """Complete all operations that watch `key`, whether their condition holds or not. Return their number."""
        watchers = self._watchers.get(key)
        if not watchers:
            return 0
        completed = 0
        for operation in list(watchers):
            completed += self.force_complete_operation(operation)
        return completed

    def force_complete_operation(self, operation: Op) -> bool:
        """Complete one operation, whether its condition holds or not. Return False if it does not wait here."""
        if operation.completed or operation not in self._keys:
            return False
        self._finish(operation, operation.on_complete)
        return True

    def force_complete_all(self) -> int:
        """Complete all waiting operations, whether their conditions hold or not. Return their number."""
        waiting = list(self._keys)
        return sum(self.force_complete_operation(operation) for operation in waiting)

    def drop(self, operation: Op) -> bool:
        """Remove an operation without an answer. Return False if it does not wait here."""
        if operation not in self._keys:
            return False
        self._remove(operation)
        self._maybe_rebuild_heap()
        return True

    def expire(self, now_ms: int, until_ns: int = sys.maxsize) -> int:
        """Expire the waiting operations whose deadline is at or before `now_ms`, the earliest first.

        Return their number. Stop after the first one that ends at or after `until_ns`. If the answer of an operation
        fails, the others expire all the same, and then the first error is raised.
        """
        expired = 0
        failure: Exception | None = None
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            operation = heapq.heappop(self._deadlines)[2]
            if not operation.completed:
                expired += 1
                try:
                    self._finish(operation, operation.on_expiration)
                except Exception as error:
                    failure = failure or error
                if self._now_ns() >= until_ns:
                    break
        self.expired += expired
        if failure is not None:
            raise failure
        return expired

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline, or None if no operation waits."""
        while self._deadlines and self._deadlines[0][2].completed:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _finish(self, operation: Op, answer: Callable[[], None]) -> None:
        # The operation is marked and removed before it answers, because the answer may complete other operations, and
        # their code must not find this one waiting.
        if self._remove(operation):
            self.waits.add(self._now_ns() - operation.begun_ns)
        answer()

    def _remove(self, operation: Op) -> bool:
        """Mark the operation as completed, and remove it from its keys. Return whether it has waited."""
        operation.completed = True
        keys = self._keys.pop(operation, None)
        for key in dict.fromkeys(keys or ()):  # a request may name the same key twice
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
        return keys is not None

    def _push_deadline(self, operation: Op) -> None:
        self._pushed += 1
        heapq.heappush(self._deadlines, (operation.deadline_ms, self._pushed, operation))
        if self._deadlines[0][2] is operation:
            self._on_earlier()
        self._maybe_rebuild_heap()

    def _maybe_rebuild_heap(self) -> None:
        if len(self._deadlines) > _SMALL_HEAP and len(self._deadlines) > 2 * len(self._keys):
            self._deadlines = [
                entry for entry in self._deadlines if not entry[2].completed and entry[0] == entry[2].deadline_ms
            ]
            heapq.heapify(self._deadlines)

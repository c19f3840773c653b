"""Where requests wait for something to become true, or for their time to run out (DESIGN 6).

An operation watches keys. Whoever changes what a key stands for calls `check_and_complete(key)`; whoever owns
the clock calls `expire(now_ms)`. An operation answers exactly once, in one of three ways: its condition came
true, somebody forced it, or it expired. From that moment on the purgatory holds no reference to it but in its
heap of deadlines, and the heap is rebuilt before the dead outnumber the living.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

from node.runtime.latency_histogram import LatencyHistogram

K = TypeVar("K", bound=Hashable)

#: Below this many entries the heap is never worth rebuilding.
_SMALL_HEAP = 64


class DelayedOperation(ABC):
    """Something that is answered later.

    deadline_ms   monotonic; from then on `expire` completes it
    completed     set once, by the purgatory alone
    begun_ns      when it began to wait; set by the purgatory
    """

    __slots__ = ("begun_ns", "completed", "deadline_ms")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.completed = False
        self.begun_ns = 0

    @abstractmethod
    def is_satisfied(self) -> bool:
        """Whether what it waits for has come true. Has no effects that others can see."""

    @abstractmethod
    def on_complete(self) -> None:
        """Answer with what there is now; called when satisfied, or when forced."""

    def on_expiration(self) -> None:
        """Answer that the time is over; the same as `on_complete` unless that would be a lie."""
        self.on_complete()


Op = TypeVar("Op", bound=DelayedOperation)


class Purgatory(Generic[K, Op]):
    """Operations by the keys that they watch, with at most `capacity` of them.

    Where it is full a newcomer expires at once: an answer that is early is honest, a queue without a bound is not.

    waits        how long those waited that are complete by now, by `now_ns`
    expired      how many of them waited in vain
    on_earlier   called when a newcomer's deadline comes before all others
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
        self._arrivals = 0

    def __len__(self) -> int:
        """How many operations wait."""
        return len(self._keys)

    def try_complete_else_watch(self, operation: Op, keys: Collection[K]) -> bool:
        """True where the operation is complete when this returns, else it waits for any of `keys`."""
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
        self._arrivals += 1
        heapq.heappush(self._deadlines, (operation.deadline_ms, self._arrivals, operation))
        if self._deadlines[0][2] is operation:
            self._on_earlier()
        self._maybe_rebuild_heap()
        return False

    def check_and_complete(self, key: K) -> int:
        """Complete the watchers of `key` whose condition has come true; how many."""
        watchers = self._watchers.get(key)
        if not watchers:
            return 0
        completed = 0
        for operation in list(watchers):
            if not operation.completed and operation.is_satisfied():
                self._finish(operation, operation.on_complete)
                completed += 1
        return completed

    def force_complete(self, key: K) -> int:
        """Complete all watchers of `key` with what there is; how many."""
        watchers = self._watchers.get(key)
        if not watchers:
            return 0
        completed = 0
        for operation in list(watchers):
            completed += self.force_complete_operation(operation)
        return completed

    def force_complete_operation(self, operation: Op) -> bool:
        """Complete one operation with what there is; False where it already was, or never waited here."""
        if operation.completed or operation not in self._keys:
            return False
        self._finish(operation, operation.on_complete)
        return True

    def force_complete_all(self) -> int:
        """Complete whatever waits; how many. For the shutdown."""
        waiting = list(self._keys)
        return sum(self.force_complete_operation(operation) for operation in waiting)

    def expire(self, now_ms: int) -> int:
        """Complete what is due at `now_ms`; how many."""
        expired = 0
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            operation = heapq.heappop(self._deadlines)[2]
            if not operation.completed:
                self._finish(operation, operation.on_expiration)
                expired += 1
        self.expired += expired
        return expired

    def next_deadline_ms(self) -> int | None:
        """When `expire` will next have something to do; None while nothing waits."""
        while self._deadlines and self._deadlines[0][2].completed:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _finish(self, operation: Op, answer: Callable[[], None]) -> None:
        # Marked and forgotten first: an answer may wake others, and they must not find it waiting.
        operation.completed = True
        keys = self._keys.pop(operation, None)
        if keys is not None:
            self.waits.add(self._now_ns() - operation.begun_ns)
        for key in dict.fromkeys(keys or ()):  # a request may name the same one twice
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
        answer()

    def _maybe_rebuild_heap(self) -> None:
        if len(self._deadlines) > _SMALL_HEAP and len(self._deadlines) > 2 * len(self._keys):
            self._deadlines = [entry for entry in self._deadlines if not entry[2].completed]
            heapq.heapify(self._deadlines)

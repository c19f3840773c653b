"""Check the waiting operations of changed keys, for a short time in each turn of the event loop."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from node.purgatory.purgatory import DelayedOperation, Purgatory

K = TypeVar("K", bound=Hashable)
Op = TypeVar("Op", bound=DelayedOperation)

#: How long checks, or answers at deadlines, may take in one turn. A check of a fetch of one partition takes about
#: 10 µs, and its answer more.
LONGEST_TURN_NS = 100_000


class _Due(NamedTuple, Generic[Op]):
    """The operations of a key that are still to be checked, at least one, after the change of this number."""

    change: int
    operations: deque[Op]


class GradualChecks(Generic[K, Op]):
    """The checks of one purgatory that are due. The object is true while there are any.

    `changed` makes the checks of a key's operations due, and each call of `run_due` makes checks for LONGEST_TURN_NS.
    The keys take turns. So ten thousand fetches that wait for one partition do not delay the requests for others. A
    check is skipped if the operation has been checked after the change, because of another of its keys.
    """

    def __init__(self, purgatory: Purgatory[K, Op], now_ns: Callable[[], int]) -> None:
        self._purgatory = purgatory
        self._now_ns = now_ns
        self._changes = 0
        self._due: OrderedDict[K, _Due[Op]] = OrderedDict()
        self._changed_again: dict[K, int] = {}  # keys of `_due`, and the number of their last change

    def __bool__(self) -> bool:
        return bool(self._due)

    def changed(self, key: K) -> None:
        """Make the checks of the operations that watch this key due."""
        self._changes += 1
        if key in self._due:
            self._changed_again[key] = self._changes
        else:
            self._make_due(key, self._changes)

    def run_due(self) -> None:
        """Make checks until none is due, or for LONGEST_TURN_NS."""
        until_ns = self._now_ns() + LONGEST_TURN_NS
        while self._due:
            key, due = self._due.popitem(last=False)
            operation = due.operations.popleft()
            if due.operations:
                self._due[key] = due  # behind the other keys
            elif key in self._changed_again:
                self._make_due(key, self._changed_again.pop(key))
            if operation.checked_at < due.change:
                operation.checked_at = self._changes
                self._purgatory.check(operation)
            if self._now_ns() >= until_ns:
                return

    def _make_due(self, key: K, change: int) -> None:
        if operations := self._purgatory.operations(key):
            self._due[key] = _Due(change, deque(operations))

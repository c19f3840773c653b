"""Check the waiting operations of a key that very many operations watch, a few in each turn of the event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar

from node.purgatory.purgatory import DelayedOperation, Purgatory

K = TypeVar("K", bound=Hashable)
Op = TypeVar("Op", bound=DelayedOperation)

#: The most operations that are checked at once. A check of a fetch takes about 10 µs, and its answer more.
MOST_AT_ONCE = 25


class GradualChecks(Generic[K, Op]):
    """The checks of one purgatory that are due. The object is true while there are any.

    The operations of a key with at most MOST_AT_ONCE of them are checked when the key changes. Those of other keys are
    checked by `go_on`, in which the keys take turns. So ten thousand fetches that wait for one partition do not delay
    the requests for others.
    """

    def __init__(self, purgatory: Purgatory[K, Op]) -> None:
        self._purgatory = purgatory
        self._left: dict[K, deque[Op]] = {}  # the operations that are still to be checked
        self._changed_again: set[K] = set()  # keys of `_left` whose operations must all be checked once more

    def __bool__(self) -> bool:
        return bool(self._left)

    def changed(self, key: K) -> None:
        """Check the operations that watch this key, now or in the next calls of `go_on`."""
        if key in self._left:
            self._changed_again.add(key)
        elif self._purgatory.watching(key) <= MOST_AT_ONCE:
            self._purgatory.check_and_complete(key)
        else:
            self._left[key] = deque(self._purgatory.operations(key))

    def go_on(self) -> None:
        """Make the next MOST_AT_ONCE checks.

        A key that has changed again meanwhile, and has few operations by now, adds the checks of these.
        """
        keys = list(islice(self._left, MOST_AT_ONCE))
        for key in keys:
            operations = self._left[key]
            for _ in range(min(len(operations), MOST_AT_ONCE // len(keys))):
                self._purgatory.check(operations.popleft())
            del self._left[key]
            if operations:
                self._left[key] = operations  # behind the other keys
            elif key in self._changed_again:
                self._changed_again.discard(key)
                self.changed(key)

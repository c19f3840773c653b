"""One server of the ensemble: its copy of the tree, and the watches set there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from cluster.zookeeper.in_memory.tree import Change, Committed, Kind, Tree, parent_of
from cluster.zookeeper.store import Operation, TransactionFailedError

#: The outcome of a transaction.
Outcome = Committed | TransactionFailedError


class Watcher(Protocol):
    """A client's connection that has set a watch."""

    def watch_fired(self, path: str) -> None:
        """Handle that the watch on this path has fired."""


class Server:
    """Commits transactions in the leader's order.

    A watch fires once, and is removed with the connection that set it.
    """

    def __init__(self) -> None:
        self.tree = Tree()
        self._on_data: dict[str, dict[Watcher, None]] = {}
        self._on_children: dict[str, dict[Watcher, None]] = {}
        self._awaited: deque[tuple[int, Callable[[], None]]] = deque()

    def watch(self, path: str, watcher: Watcher, *, children: bool) -> None:
        """Set a watch. Setting it twice has no further effect."""
        watched = self._on_children if children else self._on_data
        watched.setdefault(path, {})[watcher] = None

    def forget(self, watcher: Watcher) -> None:
        for watched in (self._on_data, self._on_children):
            for path in [path for path, watchers in watched.items() if watcher in watchers]:
                del watched[path][watcher]
                if not watched[path]:
                    del watched[path]

    def when_applied(self, zxid: int, then: Callable[[], None]) -> None:
        """Call `then` once this server has applied the transaction `zxid`, at once if it already has."""
        if self.tree.zxid >= zxid:
            then()
        else:
            self._awaited.append((zxid, then))

    def commit(self, operations: Sequence[Operation], owner: int) -> Outcome:
        """Commit a transaction, or refuse it as a whole, and return the outcome.

        Watch events are sent before any client is answered from the new state.
        """
        outcome: Outcome
        try:
            outcome = self.tree.commit(operations, owner)
        except TransactionFailedError as error:
            outcome = error
        else:
            for change in outcome.changes:
                self._fire(change)
        while self._awaited and self._awaited[0][0] <= self.tree.zxid:
            self._awaited.popleft()[1]()
        return outcome

    def _fire(self, change: Change) -> None:
        path = change.path
        self._fire_watches(self._on_data, path)
        if change.kind is Kind.DELETED:
            self._fire_watches(self._on_children, path)
        if change.kind is not Kind.CHANGED:
            self._fire_watches(self._on_children, parent_of(path))

    @staticmethod
    def _fire_watches(watched: dict[str, dict[Watcher, None]], path: str) -> None:
        for watcher in watched.pop(path, ()):
            watcher.watch_fired(path)

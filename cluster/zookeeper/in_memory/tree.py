"""One server's copy of the tree: nodes and their versions, without sessions, watches or networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from cluster.zookeeper.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Operation,
    OutcomeUnknownError,
    Result,
    StoreError,
    TransactionFailedError,
)

ROOT = "/"


@dataclass(slots=True)
class Znode:
    """A node. `creations` counts the children ever created, and numbers the next sequential one."""

    data: bytes
    czxid: int
    mzxid: int
    owner: int = 0
    version: int = 0
    creations: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> NodeStat:
        return NodeStat(self.version, self.czxid, self.owner, self.mzxid)


class Kind(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


class Change(NamedTuple):
    """A change of one node."""

    kind: Kind
    path: str


class Committed(NamedTuple):
    """The effects of a transaction.

    results   the result of each operation
    stats     for each operation, the metadata of the node that it created or set; None for others
    changes   the changed nodes, in order
    """

    results: list[Result]
    stats: list[NodeStat | None]
    changes: list[Change]


class Tree:
    """A tree of nodes. `zxid` is that of the last transaction, including failed ones.

    Copies that commit the same transactions in the same order are equal.
    """

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes = {ROOT: Znode(b"", 0, 0)}
        self._ephemerals: dict[int, dict[str, None]] = {}

    def node(self, path: str) -> Znode:
        """Return a node; NoNodeError."""
        try:
            return self._nodes[path]
        except KeyError:
            raise NoNodeError(path) from None

    def ephemerals(self, owner: int) -> list[str]:
        """Return the ephemeral nodes of a session, in the order of their creation."""
        return list(self._ephemerals.get(owner, ()))

    def commit(self, operations: Sequence[Operation], owner: int) -> Committed:
        """Commit all operations or none. TransactionFailedError names the operation that failed."""
        self.zxid += 1
        committed = Committed([], [], [])
        undo: list[Callable[[], None]] = []
        for index, operation in enumerate(operations):
            try:
                result, stat = self._apply(operation, owner, committed.changes, undo)
            except StoreError as error:
                for step in reversed(undo):
                    step()
                raise TransactionFailedError(index, error) from error
            committed.results.append(result)
            committed.stats.append(stat)
        return committed

    def _apply(
        self, operation: Operation, owner: int, changes: list[Change], undo: list[Callable[[], None]]
    ) -> tuple[Result, NodeStat | None]:
        if isinstance(operation, Create):
            path = self._create(operation, owner, undo)
            changes.append(Change(Kind.CREATED, path))
            return path, self._nodes[path].stat()
        path, node = operation.path, self.node(operation.path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{path} has version {node.version}, not {operation.version}")
        if isinstance(operation, Check):
            return None, None
        if isinstance(operation, Delete):
            if node.children:
                raise NotEmptyError(path)
            self._remove(path)
            undo.append(lambda: self._put(path, node))
            changes.append(Change(Kind.DELETED, path))
            return None, None
        before = node.data, node.version, node.mzxid

        def restore() -> None:
            node.data, node.version, node.mzxid = before

        undo.append(restore)
        node.data, node.version, node.mzxid = operation.data, node.version + 1, self.zxid
        changes.append(Change(Kind.CHANGED, path))
        return node.version, node.stat()

    def _create(self, operation: Create, owner: int, undo: list[Callable[[], None]]) -> str:
        path = operation.path
        parent = self.node(parent_of(path))
        if parent.owner:
            raise OutcomeUnknownError(
                f"{path} would be the child of an ephemeral node"
            )  # the error that the real store raises
        if operation.sequence:
            path = f"{path}{parent.creations:010d}"
        if path in self._nodes:
            raise NodeExistsError(path)

        def unmake() -> None:
            self._remove(path)
            parent.creations -= 1

        undo.append(unmake)
        parent.creations += 1
        self._put(path, Znode(operation.data, self.zxid, self.zxid, owner if operation.ephemeral else 0))
        return path

    def _put(self, path: str, node: Znode) -> None:
        self._nodes[path] = node
        self._nodes[parent_of(path)].children.add(path.rpartition("/")[2])
        if node.owner:
            self._ephemerals.setdefault(node.owner, {})[path] = None

    def _remove(self, path: str) -> None:
        node = self._nodes.pop(path)
        self._nodes[parent_of(path)].children.discard(path.rpartition("/")[2])
        if node.owner:
            owned = self._ephemerals[node.owner]
            del owned[path]
            if not owned:
                del self._ephemerals[node.owner]


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or ROOT

"""The operations that the cluster needs of ZooKeeper, and no others.

Two peers implement this protocol, `cluster.zookeeper.kazoo_store` and `cluster.zookeeper.in_memory`; one test suite
runs against both. All methods and callbacks run on the one event loop. Every operation has a deadline of the store's
own.

    StoreError
    ├── NoNodeError, NodeExistsError, BadVersionError, NotEmptyError    the server refused: nothing happened
    ├── TransactionFailedError                                          an operation of a multi was refused: as above
    ├── OutcomeUnknownError                                             no answer: a write may have happened
    ├── SessionExpiredError                                             all ephemerals are gone, or the store is closed
    └── UnreachableError                                                no server answered the first connection
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tidelog.errors import TidelogError

ANY_VERSION = -1


class StoreError(TidelogError):
    """The root of a store's errors."""


class NoNodeError(StoreError):
    """The node (or the parent of a node to be created) does not exist."""


class NodeExistsError(StoreError):
    """The node to be created exists."""


class BadVersionError(StoreError):
    """The node's version is not the expected one."""


class NotEmptyError(StoreError):
    """The node to be deleted has children."""


class OutcomeUnknownError(StoreError):
    """No answer came, for example because the connection was lost, so a write may or may not have happened.

    Read again and compare; never repeat blindly.
    """


class SessionExpiredError(StoreError):
    """The session has expired, so that all its ephemeral nodes are gone, or this store was closed."""


class UnreachableError(StoreError):
    """No session could be opened; the message says at which address, and for how long it was tried."""


class TransactionFailedError(StoreError):
    """A multi did nothing, because its operation number `index` failed with `cause`."""

    def __init__(self, index: int, cause: StoreError) -> None:
        super().__init__(f"operation {index}: {cause!r}")
        self.index = index
        self.cause = cause


@dataclass(frozen=True, slots=True)
class NodeStat:
    """The metadata of a node. `version` counts the writes since the creation; `owner` is a session, or 0.

    `czxid` and `mzxid` are the zxids of the creation and of the last write, in the one order of all writes of the
    ensemble.
    """

    version: int
    czxid: int
    owner: int
    mzxid: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node as read."""

    data: bytes
    stat: NodeStat


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the multi unless the node exists and has this version (−1: any)."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node. The result is the path, with its number if `sequence`. An `ephemeral` node ends with the
    session.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Set a node's data if the node has this version (−1: any). The result is the new version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node if it has this version (−1: any) and no children. The result is None."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete
Result = int | str | None


class SessionState(Enum):
    """The state of a session.

    CONNECTED after SUSPENDED is the same session without its watches: read again what matters. CONNECTED after EXPIRED
    is a new session.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A watch fired, because the node, or the set of its children, changed since the watch was set."""

    path: str


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """The session has this state now."""

    state: SessionState


StoreEvent = NodeChanged | SessionChanged
Listener = Callable[[StoreEvent], None]


class Store(Protocol):
    """One session with ZooKeeper. A read with `watch` sets one watch, which fires once."""

    @property
    def session_id(self) -> int:
        """Return the session's id; 0 while there is no session."""

    @property
    def connected(self) -> bool:
        """Return whether requests are likely to be answered now."""

    @property
    def session_timeout_ms(self) -> int:
        """Return the timeout that the server granted; the requested one before that."""

    @property
    def confirmed_at_ms(self) -> int:
        """Return when (monotonic) the last sync or write that was answered was *sent*. The session lives at least its
        timeout from then on.

        Answers to syncs and writes, refusals included, come through the leader of the ensemble, which keeps the
        sessions. A read proves nothing about the session, because a server that has lost its leader still answers reads
        for a while.
        """

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the loop for every event; it must not block.

        Return a function that ends the subscription (idempotent).
        """

    async def get(self, path: str, *, watch: bool = False) -> Node:
        """Return a node. NoNodeError (and then no watch is set). A watch fires when the node is set or deleted."""

    async def exists(self, path: str, *, watch: bool = False) -> NodeStat | None:
        """Return a node's metadata; None if there is no node.

        A watch fires when the node is created, set or deleted.
        """

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the children's names, sorted. NoNodeError.

        A watch fires when a child is created or deleted, or the node itself is deleted.
        """

    async def sync(self, path: str) -> None:
        """Make later reads at least as recent as every write of any client before this call, through whichever
        server.
        """

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, NodeStat]:
        """Create a node and return its path (with its number if `sequence`) and metadata.

        NodeExistsError, NoNodeError (no parent).
        """

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Set a node's data if it has this version (−1: any); return the new version. NoNodeError, BadVersionError."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node if it has this version (−1: any). NoNodeError, BadVersionError, NotEmptyError."""

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Perform all operations or none, and return their results in order.

        TransactionFailedError names the operation that failed.
        """

    async def close(self) -> None:
        """End the session at once, and with it its ephemerals. Without a connection the session ends by its timeout."""

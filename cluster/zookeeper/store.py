"""What the cluster needs of ZooKeeper, and no more.

Two peers stand behind this protocol, `cluster.zookeeper.kazoo_store` and `cluster.zookeeper.in_memory`; one test suite
runs against both. All methods and callbacks run on the one event loop. Every operation has a deadline of the store's
own.

    StoreError
    ├── NoNodeError, NodeExistsError, BadVersionError, NotEmptyError    the store said no: nothing happened
    ├── TransactionFailedError                                          one of a multi said no: nothing happened
    ├── OutcomeUnknownError                                             the connection went away: it may have happened
    ├── SessionExpiredError                                             all ephemerals of the session are gone
    └── UnreachableError                                                nobody answered a first connect
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tidelog.errors import TidelogError

ANY_VERSION = -1


class StoreError(TidelogError):
    """The root of what a store raises."""


class NoNodeError(StoreError):
    """The node (or the parent of a node to be made) does not exist."""


class NodeExistsError(StoreError):
    """A node to be made exists."""


class BadVersionError(StoreError):
    """The node's version is not the expected one."""


class NotEmptyError(StoreError):
    """A node to be deleted has children."""


class OutcomeUnknownError(StoreError):
    """The connection is gone: a write may or may not have happened. Re-read and compare, never repeat blindly."""


class SessionExpiredError(StoreError):
    """The session is over, and with it every ephemeral node that it made."""


class UnreachableError(StoreError):
    """No session could be opened; the message says where and how long it was tried."""


class TransactionFailedError(StoreError):
    """A multi did nothing, because its operation number `index` failed with `cause`."""

    def __init__(self, index: int, cause: StoreError) -> None:
        super().__init__(f"operation {index}: {cause!r}")
        self.index = index
        self.cause = cause


@dataclass(frozen=True, slots=True)
class NodeStat:
    """`version` counts the writes since the creation; `owner` is a session or 0.

    `czxid` and `mzxid` name the creation and the last write, in the one order of all writes of the ensemble.
    """

    version: int
    czxid: int
    owner: int
    mzxid: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read."""

    data: bytes
    stat: NodeStat


@dataclass(frozen=True, slots=True)
class Check:
    """Fails the multi unless the node has this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Its result is the path, with its number if `sequence`. An `ephemeral` node ends with the session."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Its result is the new version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Its result is None."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete
Result = int | str | None


class SessionState(Enum):
    """CONNECTED after SUSPENDED is the same session, but its watches are gone: read again what matters."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A watch fired: the node, or the set of its children, is not what it was when the watch was set."""

    path: str


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """The session's state as of now."""

    state: SessionState


StoreEvent = NodeChanged | SessionChanged
Listener = Callable[[StoreEvent], None]


class Store(Protocol):
    """One session with ZooKeeper. A read with `watch` arms one event, which fires once."""

    @property
    def session_id(self) -> int:
        """0 while there is no session."""

    @property
    def connected(self) -> bool:
        """Requests are likely to be answered now."""

    @property
    def session_timeout_ms(self) -> int:
        """The timeout that the server granted."""

    @property
    def confirmed_at_ms(self) -> int:
        """When (monotonic) the last sync or write that was answered was *sent*; plus the timeout, the session lives
        surely.

        Their answers, a refusal too, come through the leader of the ensemble, which keeps the sessions. A read says
        nothing of them: a server that has lost its leader goes on answering it for a while.
        """

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` on the loop for every event; it must not block. Returns what ends it (idempotent)."""

    async def get(self, path: str, *, watch: bool = False) -> Node:
        """NoNodeError (and then no watch is armed)."""

    async def exists(self, path: str, *, watch: bool = False) -> NodeStat | None:
        """A watch on a node that does not exist fires when it is made."""

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Names, sorted. NoNodeError."""

    async def sync(self, path: str) -> None:
        """What is read after it is not older than what anybody had written before it, whichever server they asked."""

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, NodeStat]:
        """The path that was made (with its number, if `sequence`). NodeExistsError, NoNodeError (no parent)."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """The new version. NoNodeError, BadVersionError."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """NoNodeError, BadVersionError, NotEmptyError."""

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """All or nothing; TransactionFailedError says which operation failed."""

    async def close(self) -> None:
        """Ends the session at once: its ephemerals go with it."""

"""ZooKeeper's twin in memory: versions, czxids, ephemerals, sessions and watches, without a socket or a thread.

`MemoryZooKeeper` is the server; each `connect()` is one client. Faults are methods of the server: a session can be
expired, a client cut off and healed, and the answer to its next write withheld, so that it does not know the outcome.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from cluster.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    Listener,
    Node,
    NodeChanged,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Operation,
    OutcomeUnknownError,
    Result,
    SessionChanged,
    SessionExpiredError,
    SessionState,
    Set,
    StoreError,
    StoreEvent,
    TransactionFailedError,
)
from tidelog.clock import Clock, SystemClock


@dataclass(slots=True)
class _Znode:
    data: bytes
    czxid: int
    owner: int = 0
    version: int = 0
    mzxid: int = 0
    sequence: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> NodeStat:
        return NodeStat(self.version, self.czxid, self.owner, self.mzxid)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class MemoryZooKeeper:
    """The tree and its sessions. `clock` serves the session timers of the clients."""

    def __init__(self, clock: Clock | None = None, session_timeout_ms: int = 6000) -> None:
        self.clock: Clock = clock or SystemClock()
        self.session_timeout_ms = session_timeout_ms
        self._nodes: dict[str, _Znode] = {"/": _Znode(b"", 0)}
        self._zxid = 0
        self._sessions = 0
        self._clients: list[MemoryStore] = []
        self._watchers: dict[tuple[str, bool], list[MemoryStore]] = defaultdict(list)

    def connect(self) -> MemoryStore:
        """A client with a fresh session."""
        client = MemoryStore(self)
        self._clients.append(client)
        client.session_id = self.new_session()
        return client

    def new_session(self) -> int:
        """The next session's id."""
        self._sessions += 1
        return self._sessions

    def expire(self, session_id: int) -> None:
        """Ends a session: its ephemerals go, and its client (if it is not cut off) learns of it and starts another."""
        for path in sorted((p for p, node in self._nodes.items() if node.owner == session_id), reverse=True):
            self.apply(Delete(path), 0)
        for client in self._clients:
            if client.session_id == session_id and session_id:
                client.lose_session()

    def forget(self, client: MemoryStore) -> None:
        """The client is gone, and all its watches."""
        for watchers in self._watchers.values():
            while client in watchers:
                watchers.remove(client)

    def watch(self, path: str, children: bool, client: MemoryStore) -> None:
        """Arms a watch; arming it twice is arming it once."""
        watchers = self._watchers[path, children]
        if client not in watchers:
            watchers.append(client)

    def node(self, path: str) -> _Znode:
        """NoNodeError."""
        try:
            return self._nodes[path]
        except KeyError:
            raise NoNodeError(path) from None

    def commit(self, operations: Sequence[Operation], owner: int) -> list[Result]:
        """All or nothing, like a multi."""
        before: dict[str, _Znode | None] = {}
        for path in {path for operation in operations for path in (operation.path, _parent(operation.path))}:
            node = self._nodes.get(path)
            before[path] = None if node is None else replace(node, children=set(node.children))
        fired: list[tuple[str, bool]] = []
        results: list[Result] = []
        for index, operation in enumerate(operations):
            try:
                results.append(self._change(operation, owner, fired))
            except StoreError as error:
                made = {path: None for path in results if isinstance(path, str)}
                for path, node in (made | before).items():
                    if node is None:
                        self._nodes.pop(path, None)
                    else:
                        self._nodes[path] = node
                raise TransactionFailedError(index, error) from error
        self._fire(fired)
        return results

    def apply(self, operation: Operation, owner: int) -> Result:
        """One write by itself."""
        fired: list[tuple[str, bool]] = []
        result = self._change(operation, owner, fired)
        self._fire(fired)
        return result

    def next_sequence(self, path: str) -> str:
        """The path of a sequential node: ten digits, counted by the parent."""
        parent = self.node(_parent(path))
        number = parent.sequence
        parent.sequence += 1
        return f"{path}{number:010d}"

    def _change(self, operation: Operation, owner: int, fired: list[tuple[str, bool]]) -> Result:
        path = operation.path
        if isinstance(operation, Create):
            parent = self.node(_parent(path))
            if operation.sequence:
                path = self.next_sequence(path)
            if path in self._nodes:
                raise NodeExistsError(path)
            self._zxid += 1
            self._nodes[path] = _Znode(
                operation.data, self._zxid, owner if operation.ephemeral else 0, mzxid=self._zxid
            )
            parent.children.add(path.rpartition("/")[2])
            fired += [(path, False), (_parent(path), True)]
            return path
        node = self.node(path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{path} has version {node.version}, not {operation.version}")
        if isinstance(operation, Check):
            return None
        self._zxid += 1
        if isinstance(operation, Set):
            node.data = operation.data
            node.version += 1
            node.mzxid = self._zxid
            fired.append((path, False))
            return node.version
        if node.children:
            raise NotEmptyError(path)
        del self._nodes[path]
        self.node(_parent(path)).children.discard(path.rpartition("/")[2])
        fired += [(path, False), (path, True), (_parent(path), True)]
        return None

    def _fire(self, changes: list[tuple[str, bool]]) -> None:
        for path, children in changes:
            for client in self._watchers.pop((path, children), []):
                client.deliver(NodeChanged(path))


class MemoryStore:
    """One client of a MemoryZooKeeper; a `Store`.

    cut_off       requests fail with an unknown outcome and nothing is delivered
    lose_answers  so many of the next writes happen without an answer
    """

    def __init__(self, server: MemoryZooKeeper) -> None:
        self._server = server
        self._listeners: list[Listener] = []
        self.session_id = 0
        self.cut_off = False
        self.lose_answers = 0
        self.confirmed_at_ms = server.clock.monotonic_ms()
        self._expired_unseen = False

    @property
    def connected(self) -> bool:
        return not self.cut_off and self.session_id != 0

    @property
    def session_timeout_ms(self) -> int:
        return self._server.session_timeout_ms

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def deliver(self, event: StoreEvent) -> None:
        """Events arrive in a later turn of the loop, as they do from another thread."""
        if self.cut_off:
            return
        for listener in list(self._listeners):
            asyncio.get_running_loop().call_soon(listener, event)

    def suspend(self) -> None:
        """The network fails: what was watched is forgotten."""
        self.deliver(SessionChanged(SessionState.SUSPENDED))
        self._server.forget(self)
        self.cut_off = True

    def resume(self) -> None:
        """The network is back; the session may have ended meanwhile."""
        self.cut_off = False
        if self._expired_unseen:
            self.lose_session()
        else:
            self.deliver(SessionChanged(SessionState.CONNECTED))

    def lose_session(self) -> None:
        """The server ended the session. A client that is cut off learns of it when it comes back."""
        self._expired_unseen = self.cut_off
        if self.cut_off:
            return
        self._server.forget(self)
        self.deliver(SessionChanged(SessionState.EXPIRED))
        self.session_id = self._server.new_session()
        self.deliver(SessionChanged(SessionState.CONNECTED))

    async def get(self, path: str, *, watch: bool = False) -> Node:
        await self._turn()
        node = self._server.node(path)
        if watch:
            self._server.watch(path, False, self)
        return Node(node.data, node.stat())

    async def exists(self, path: str, *, watch: bool = False) -> NodeStat | None:
        await self._turn()
        if watch:
            self._server.watch(path, False, self)
        try:
            return self._server.node(path).stat()
        except NoNodeError:
            return None

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        await self._turn()
        names = sorted(self._server.node(path).children)
        if watch:
            self._server.watch(path, True, self)
        return names

    async def sync(self, path: str) -> None:
        await self._turn()

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, NodeStat]:
        await self._turn()
        path = str(self._server.apply(Create(path, data, ephemeral, sequence), self.session_id))
        stat = self._server.node(path).stat()
        self._answer()
        return path, stat

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        await self._turn()
        self._server.apply(Set(path, data, version), self.session_id)
        stat = self._server.node(path).stat()
        self._answer()
        return stat.version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._turn()
        self._server.apply(Delete(path, version), self.session_id)
        self._answer()

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        await self._turn()
        results = self._server.commit(operations, self.session_id)
        self._answer()
        return results

    async def close(self) -> None:
        session, self.session_id = self.session_id, 0
        self._server.forget(self)
        self._server.expire(session)

    async def _turn(self) -> None:
        sent_at_ms = self._server.clock.monotonic_ms()
        await asyncio.sleep(0)
        if self.session_id == 0:
            raise SessionExpiredError("the session is closed")
        if self.cut_off:
            raise OutcomeUnknownError("cut off")
        self.confirmed_at_ms = sent_at_ms

    def _answer(self) -> None:
        if self.lose_answers:
            self.lose_answers -= 1
            raise OutcomeUnknownError("the answer was lost")

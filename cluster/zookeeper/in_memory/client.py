"""One client of the in-memory ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from cluster.zookeeper.in_memory.link import ClientNetwork, Link, Work
from cluster.zookeeper.in_memory.network_conditions import delay_s
from cluster.zookeeper.in_memory.server import Outcome, Server
from cluster.zookeeper.in_memory.stream import LoopSupplier
from cluster.zookeeper.in_memory.tree import Committed
from cluster.zookeeper.store import (
    ANY_VERSION,
    Create,
    Delete,
    Listener,
    Node,
    NodeStat,
    NoNodeError,
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
from tidelog.clock import Clock

#: How long a closing client waits for the answer that its session has ended.
_CLOSE_TIMEOUT_S = 3.0

T = TypeVar("T")


class Ensemble(Protocol):
    """The part of `cluster.zookeeper.in_memory.ensemble.MemoryZooKeeper` that a client uses."""

    def choose_server(self, seen_zxid: int) -> Server: ...
    def open_session(self, session_id: int, timeout_ms: int, link: Link, answer: Callable[[Any], None]) -> None: ...
    def propose(
        self, operations: Sequence[Operation], owner: int, server: Server, answer: Callable[[Outcome], None]
    ) -> None: ...
    def sync(self, link: Link, answer: Callable[[Any], None]) -> None: ...
    def close_session(self, link: Link, answer: Callable[[Any], None]) -> None: ...


class MemoryStore:
    """A `Store`; made by `MemoryZooKeeper.connect` or `open`.

    network         the client's network, where faults are commanded
    get_loop        returns the client's event loop
    lose_requests   this many of the next writes fail without being made
    lose_answers    this many of the next writes are made, but fail because the answer is lost
    """

    def __init__(
        self,
        zookeeper: Ensemble,
        network: ClientNetwork,
        clock: Clock,
        session_timeout_ms: int,
        get_loop: LoopSupplier,
    ) -> None:
        self.network = network
        self.get_loop = get_loop
        self.session_timeout_ms = session_timeout_ms
        self.session_id = 0
        self.lose_requests = 0
        self.lose_answers = 0
        self.confirmed_at_ms = clock.monotonic_ms()
        self._zookeeper = zookeeper
        self._clock = clock
        self._listeners: list[Listener] = []
        self._link: Link | None = None
        self._connected = asyncio.Event()
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._connecting: asyncio.TimerHandle | None = None
        self._seen_zxid = 0
        self._closed = False
        network.attach(self)

    # --- the session -----------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    async def until_connected(self) -> None:
        await self._connected.wait()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def begin(self) -> None:
        """Connect and open a session at once, without any delay."""
        self._link = Link(self.network, self._zookeeper.choose_server(0), self)
        self._zookeeper.open_session(0, self.session_timeout_ms, self._link, partial(setattr, self, "session_id"))
        self._connected.set()

    async def close(self) -> None:
        """End the session. If ZooKeeper cannot be reached, the session ends by its timeout."""
        if self._closed:
            return
        self._closed = True
        if self._link is not None and self.connected:
            left: asyncio.Future[Any] = self.get_loop().create_future()
            self._pending[left] = None
            self._link.request(self._zookeeper.close_session, partial(_complete, left))
            await asyncio.wait([left], timeout=_CLOSE_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kill the client's process: it notices nothing any more, and its session ends by its timeout."""
        self._closed = True
        self.network.detach(self)
        if self._connecting is not None:
            self._connecting.cancel()
        if self._link is not None:
            self._link.abandon()

    # --- requests --------------------------------------------------------------------------------------------

    async def get(self, path: str, *, watch: bool = False) -> Node:
        def read(server: Server, link: Link) -> Node:
            node = server.tree.node(path)
            if watch:
                server.watch(path, link, children=False)
            return Node(node.data, node.stat())

        return await self._read(read)

    async def exists(self, path: str, *, watch: bool = False) -> NodeStat | None:
        def read(server: Server, link: Link) -> NodeStat | None:
            if watch:
                server.watch(path, link, children=False)
            try:
                return server.tree.node(path).stat()
            except NoNodeError:
                return None

        return await self._read(read)

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        def read(server: Server, link: Link) -> list[str]:
            names = sorted(server.tree.node(path).children)
            if watch:
                server.watch(path, link, children=True)
            return names

        return await self._read(read)

    async def sync(self, path: str) -> None:
        await self._ask(self._zookeeper.sync, by_leader=True)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, NodeStat]:
        made, stat = await self._write_one(Create(path, data, ephemeral, sequence))
        assert stat is not None
        return str(made), stat

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        _, stat = await self._write_one(Set(path, data, version))
        assert stat is not None
        return stat.version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write_one(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return (await self._write(operations)).results

    async def _write_one(self, operation: Operation) -> tuple[Result, NodeStat | None]:
        try:
            committed = await self._write([operation])
        except TransactionFailedError as error:
            raise error.cause from None
        return committed.results[0], committed.stats[0]

    async def _write(self, operations: Sequence[Operation]) -> Committed:
        def work(link: Link, answer: Callable[[Outcome], None]) -> None:
            self._zookeeper.propose(operations, link.session_id, link.server, answer)

        for operation in operations:
            if isinstance(operation, Set):
                self.network.on_write(operation)
        if self.lose_requests:
            self.lose_requests -= 1
            raise OutcomeUnknownError("the request was lost")
        committed: Committed = await self._ask(work, by_leader=True)
        if self.lose_answers:
            self.lose_answers -= 1
            raise OutcomeUnknownError("the answer was lost")
        return committed

    async def _read(self, read: Callable[[Server, Link], T]) -> T:
        def work(link: Link, answer: Callable[[T | StoreError], None]) -> None:
            try:
                answer(read(link.server, link))
            except StoreError as error:
                answer(error)

        found: T = await self._ask(work)
        return found

    async def _ask(self, work: Work, *, by_leader: bool = False) -> Any:
        """Send a request and return its answer, or raise it if it is an error. Wait at most one session timeout.

        An answer that comes through the leader (`by_leader`) confirms the session.
        """
        if self._closed:
            raise SessionExpiredError("the session is closed")
        if self._link is None or not self.connected:
            raise OutcomeUnknownError("no connection to ZooKeeper")
        loop, sent_at_ms = self.get_loop(), self._clock.monotonic_ms()
        answered: asyncio.Future[Any] = loop.create_future()
        self._pending[answered] = None
        no_answer = OutcomeUnknownError("ZooKeeper does not answer")
        timer = loop.call_later(self.session_timeout_ms / 1000, _complete, answered, no_answer)
        self._link.request(work, partial(_complete, answered))
        try:
            outcome = await answered
        finally:
            timer.cancel()
            del self._pending[answered]
        if by_leader and not isinstance(outcome, OutcomeUnknownError):
            self.confirmed_at_ms = max(self.confirmed_at_ms, sent_at_ms)
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    # --- for the connection and its network ------------------------------------------------------------------

    def deliver(self, event: StoreEvent) -> None:
        """Pass an event to all listeners."""
        for listener in list(self._listeners):
            listener(event)

    def try_connect(self) -> None:
        """Connect after a drawn delay, unless a connection exists, is being made, or is not possible."""
        if self._closed or self._link is not None or self._connecting is not None or not self.network.open:
            return
        wait_s = delay_s(self.network.rng, self.network.conditions.reconnect_ms)
        self._connecting = self.get_loop().call_later(wait_s, self._connect)

    def on_link_lost(self, link: Link) -> None:
        """Handle the loss of the connection and its watches: pending requests fail, and the client connects again."""
        if link is not self._link:
            return
        self._seen_zxid = link.server.tree.zxid
        self._link = None
        was_connected = self.connected
        self._connected.clear()
        if was_connected and not self._closed:
            # In a later turn of the loop, because the code that broke the connection may not be finished.
            self.get_loop().call_soon(self.deliver, SessionChanged(SessionState.SUSPENDED))
        for answered in self._pending:
            _complete(answered, OutcomeUnknownError("the connection to ZooKeeper is gone"))
        self.try_connect()

    def _connect(self) -> None:
        self._connecting = None
        if not self.network.open:
            return
        self._link = Link(self.network, self._zookeeper.choose_server(self._seen_zxid), self)
        self._link.request(
            partial(self._zookeeper.open_session, self.session_id, self.session_timeout_ms), self._on_session
        )

    def _on_session(self, session_id: int) -> None:
        """Handle the server's answer about the session; 0: the session has expired, and the next connection opens
        another.
        """
        before, self.session_id = self.session_id, session_id
        if session_id:
            self._connected.set()
            self.deliver(SessionChanged(SessionState.CONNECTED))
        elif before:
            self.deliver(SessionChanged(SessionState.EXPIRED))


def _complete(answered: asyncio.Future[Any], outcome: Any) -> None:
    if not answered.done():
        answered.set_result(outcome)

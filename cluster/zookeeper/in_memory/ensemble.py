"""The servers of the in-memory ZooKeeper: a leader and its followers, which together keep the sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

from cluster.zookeeper.in_memory.client import MemoryStore
from cluster.zookeeper.in_memory.link import ClientNetwork, Link, ServerHealth
from cluster.zookeeper.in_memory.network_conditions import FAULTLESS, NetworkConditions, delay_s
from cluster.zookeeper.in_memory.server import Outcome, Server
from cluster.zookeeper.in_memory.sessions import Sessions
from cluster.zookeeper.in_memory.stream import LoopSupplier, Stream
from cluster.zookeeper.in_memory.tree import Committed, Znode
from cluster.zookeeper.store import Delete, Operation, Set, UnreachableError
from tidelog.clock import Clock, SystemClock

S = TypeVar("S", bound=MemoryStore)


class MemoryZooKeeper:
    """An ensemble in memory. Faults of a client are commanded at its `ClientNetwork`, faults of the servers here.

    clock       serves the clients' session timers; a client may have another clock
    servers     with more than one, a client may read stale data until it calls `sync`
    get_loop    returns the servers' event loop, if it is not the caller's
    """

    def __init__(
        self,
        clock: Clock | None = None,
        session_timeout_ms: int = 6000,
        *,
        servers: int = 1,
        conditions: NetworkConditions = FAULTLESS,
        rng: Random | None = None,
        get_loop: LoopSupplier = asyncio.get_running_loop,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.session_timeout_ms = session_timeout_ms
        self.conditions = conditions
        self._listeners: list[Callable[[str], object]] = []
        self.sessions = Sessions(self.expire, get_loop)
        self._rng = rng or Random(0)
        self._leader = Server()
        self._followers = [(Server(), Stream(get_loop)) for _ in range(servers - 1)]
        self._health = ServerHealth()
        self._networks: list[ClientNetwork] = []
        self._links: dict[int, Link] = {}

    # --- clients ---------------------------------------------------------------------------------------------

    def subscribe(self, on_change: Callable[[str], object]) -> None:
        """Have `on_change` called with the path of each node that is created, set or deleted, before any client learns
        of it.
        """
        self._listeners.append(on_change)

    def client_network(self, on_write: Callable[[Set], object] = lambda write: None) -> ClientNetwork:
        """Return a network between some machine and this ensemble, with the conditions of the ensemble.

        `on_write` is called with each `Set` that is about to leave a client here.
        """
        network = ClientNetwork(self.conditions, self._rng, self.sessions, self._health, on_write)
        self._networks.append(network)
        return network

    def connect(self, kind: type[S] = MemoryStore, *, network: ClientNetwork | None = None) -> S:  # type: ignore[assignment]
        """Return a client of this kind whose session is already open, on a network of its own unless one is given."""
        store = kind(
            self, network or self.client_network(), self.clock, self.session_timeout_ms, asyncio.get_running_loop
        )
        store.begin()
        return store

    async def open(
        self,
        network: ClientNetwork,
        *,
        session_timeout_ms: int,
        clock: Clock | None = None,
        connect_timeout_ms: int = 15_000,
    ) -> MemoryStore:
        """Return a client that connects as a real one does, on the caller's event loop. UnreachableError if that takes
        too long.
        """
        loop = asyncio.get_running_loop()
        store = MemoryStore(self, network, clock or self.clock, session_timeout_ms, lambda: loop)
        store.try_connect()
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await store.until_connected()
        except TimeoutError:
            raise UnreachableError(f"no ZooKeeper answers in memory (tried for {connect_timeout_ms} ms)") from None
        finally:
            if not store.connected:
                await store.close()
        return store

    # --- faults ----------------------------------------------------------------------------------------------

    def expire(self, session_id: int) -> None:
        """End a session: its ephemeral nodes are deleted, and its client learns of it as soon as it can be reached."""
        if not self.sessions.end(session_id):
            return
        ephemerals = self._leader.tree.ephemerals(session_id)
        self.propose([Delete(path) for path in ephemerals], 0, self._leader, lambda outcome: None)
        if link := self._links.pop(session_id, None):
            link.close_by_server()

    def stop(self) -> None:
        """Kill the servers, which breaks all connections; sessions and data stay on their disks."""
        self._set_health(up=False)
        self.sessions.stop()

    def start(self) -> None:
        """Start the servers again. Every session has its whole timeout to reconnect."""
        self.sessions.start()
        self._set_health()

    def freeze(self) -> None:
        """Suspend the servers: connections stay open, and no request is answered."""
        self.sessions.sleep()
        self._set_health(awake=False)

    def thaw(self) -> None:
        """Resume the servers. First they end the sessions that seem to have been silent for too long."""
        self.sessions.wake()
        self._set_health()

    def _set_health(self, *, up: bool = True, awake: bool = True) -> None:
        self._health.up, self._health.awake = up, awake
        for network in self._networks:
            network.changed()

    # --- inspection ------------------------------------------------------------------------------------------

    def node(self, path: str) -> Znode:
        """Return the leader's copy of a node; NoNodeError."""
        return self._leader.tree.node(path)

    # --- for clients and their connections -------------------------------------------------------------------

    def choose_server(self, seen_zxid: int) -> Server:
        """Return a random server that has applied all that a client has seen."""
        up_to_date = [server for server, _ in self._followers if server.tree.zxid >= seen_zxid]
        return self._rng.choice([self._leader, *up_to_date]) if up_to_date else self._leader

    def open_session(self, session_id: int, timeout_ms: int, link: Link, answer: Callable[[Any], None]) -> None:
        """Answer with the session's id: this one, a new one for 0, or 0 if this session has expired."""
        if session_id == 0:
            session_id = self.sessions.open(timeout_ms)
        elif session_id not in self.sessions:
            answer(0)
            link.close_by_server()
            return
        if before := self._links.get(session_id):
            before.session_id = 0  # the session moves here; requests under way over the other connection are not served
            before.end()
        self._links[session_id] = link
        link.session_id = session_id
        self.sessions.heard(session_id)
        answer(session_id)

    def propose(
        self, operations: Sequence[Operation], owner: int, server: Server, answer: Callable[[Outcome], None]
    ) -> None:
        """Decide and commit a transaction; answer once the client's server has committed it too."""
        outcome = self._leader.commit(operations, owner)
        if isinstance(outcome, Committed):
            for change in outcome.changes:
                for on_change in self._listeners:
                    on_change(change.path)
        for follower, stream in self._followers:
            stream.send(delay_s(self._rng, self.conditions.lag_ms), partial(follower.commit, operations, owner))
        server.when_applied(self._leader.tree.zxid, lambda: answer(outcome))

    def sync(self, link: Link, answer: Callable[[Any], None]) -> None:
        """Answer once the client's server has applied all that the leader has committed by now."""
        link.server.when_applied(self._leader.tree.zxid, lambda: answer(None))

    def close_session(self, link: Link, answer: Callable[[Any], None]) -> None:
        """End the session of a client that closes, with its ephemeral nodes, and answer None."""
        session_id = link.session_id
        self._links.pop(session_id, None)
        link.session_id = 0
        self.expire(session_id)
        answer(None)

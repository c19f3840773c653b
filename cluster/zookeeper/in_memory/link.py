"""The network between a machine and ZooKeeper, and one connection over it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import Any, Protocol

from cluster.zookeeper.in_memory.network_conditions import NetworkConditions, delay_s
from cluster.zookeeper.in_memory.server import Server
from cluster.zookeeper.in_memory.sessions import Sessions
from cluster.zookeeper.in_memory.stream import LoopSupplier, Stream
from cluster.zookeeper.store import NodeChanged, Set, StoreEvent

#: The shares of the session timeout after which a client pings, and abandons a silent connection, as kazoo does.
_PING_SHARE = 1 / 3
_SILENCE_SHARE = 2 / 3

#: What a server does for a request; it calls the second argument once, with the answer.
Work = Callable[["Link", Callable[[Any], None]], None]


class LinkClient(Protocol):
    """A client, as its connection and its network see it."""

    session_timeout_ms: int
    get_loop: LoopSupplier

    def deliver(self, event: StoreEvent) -> None: ...

    def on_link_lost(self, link: Link) -> None:
        """Handle the loss of that connection."""

    def try_connect(self) -> None:
        """Connect again, because a connection may be possible now."""

    def kill(self) -> None:
        """Kill the client's process."""


@dataclass(slots=True)
class ServerHealth:
    """The state of the servers: `up` unless killed, `awake` unless suspended."""

    up: bool = True
    awake: bool = True


class ClientNetwork:
    """The network between one machine and ZooKeeper.

    The network outlives the clients that use it, and commanded faults hold for all of them.

    conditions   may be replaced at any time
    on_write     called with each `Set` that is about to leave a client here
    """

    def __init__(
        self,
        conditions: NetworkConditions,
        rng: Random,
        sessions: Sessions,
        servers: ServerHealth,
        on_write: Callable[[Set], object] = lambda write: None,
    ) -> None:
        self.conditions = conditions
        self.rng = rng
        self.sessions = sessions
        self.links: dict[Link, None] = {}
        self.on_write = on_write
        self._servers = servers
        self._clients: dict[LinkClient, None] = {}
        self._refused = False
        self._requests_pass = self._answers_pass = True

    # --- by command ------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Break every connection; both ends notice. Messages under way are lost, and the clients connect again."""
        for link in list(self.links):
            link.break_down()

    def refuse(self) -> None:
        """Break every connection, and refuse new ones until `heal`."""
        self._refused = True
        self.drop()

    def cut(self, *, requests: bool = True, answers: bool = True) -> None:
        """Let nothing pass (in that direction); neither end is notified.

        Messages under way arrive after `heal` if the connection still exists. A request does so even if its client has
        abandoned it meanwhile.
        """
        self._requests_pass &= not requests
        self._answers_pass &= not answers
        self.changed()

    def heal(self) -> None:
        """End `refuse` and `cut`."""
        self._refused = False
        self._requests_pass = self._answers_pass = True
        self.changed()

    def kill(self) -> None:
        """Kill the processes of the machine: none of their clients notices anything any more."""
        for client in list(self._clients):
            client.kill()

    # --- for the ensemble and its clients --------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Return whether a connection can be made."""
        passes = self._requests_pass and self._answers_pass
        return passes and not self._refused and self._servers.up and self._servers.awake

    def changed(self) -> None:
        """Apply a change of the commanded faults or of the servers' health."""
        if not self._servers.up:
            self.drop()
        requests_pass = self._requests_pass and self._servers.awake
        for link in list(self.links):
            link.set_passing(requests=requests_pass, answers=self._answers_pass)
        if self.open:
            for client in list(self._clients):
                client.try_connect()

    def attach(self, client: LinkClient) -> None:
        self._clients[client] = None

    def detach(self, client: LinkClient) -> None:
        self._clients.pop(client, None)


class Link:
    """One connection of one client to one server, which serves requests in their order, one at a time."""

    def __init__(self, network: ClientNetwork, server: Server, client: LinkClient) -> None:
        self.server = server
        self.session_id = 0
        self._network = network
        self._client: LinkClient | None = client
        self._timeout_s = client.session_timeout_ms / 1000
        self._client_loop, self._server_loop = client.get_loop, network.sessions.get_loop
        self._up, self._down = Stream(self._server_loop), Stream(self._client_loop)
        self._work: deque[tuple[Work, Callable[[Any], None]]] = deque()
        self._serving = False
        self._last_request_s = -inf
        self._closed_by_server = self._closed = False
        self._silence_timer: asyncio.TimerHandle | None = None
        network.links[self] = None

    # --- the client's end ------------------------------------------------------------------------------------

    def request(self, work: Work, answered: Callable[[Any], None]) -> None:
        """Have the server do `work`; `answered` is called with its answer, unless the connection ends first."""
        conditions, rng = self._network.conditions, self._network.rng
        wait_s = delay_s(rng, conditions.request_ms)
        if conditions.breaks and rng.random() < conditions.breaks:
            if rng.random() < 0.5:
                self._up.send(wait_s, partial(self._receive, work, _lost_answer))
            self._up.send(wait_s, self.break_down)
        else:
            self._up.send(wait_s, partial(self._receive, work, answered))

    def abandon(self) -> None:
        """Close the connection from the client's side. Messages already sent still arrive, if they can."""
        self._stop_silence_timer()
        self._down.close()
        client, self._client = self._client, None
        if self._closed_by_server:
            self.end()
        else:
            self._up.send(0, self.end)
        if client is not None:
            client.on_link_lost(self)

    # --- the network -----------------------------------------------------------------------------------------

    def break_down(self) -> None:
        """Break the connection; both ends notice."""
        client = self._client
        self.end()
        if client is not None:
            client.on_link_lost(self)

    def set_passing(self, *, requests: bool, answers: bool) -> None:
        """Set which directions let messages pass from now on.

        Unless both do, the client abandons the connection after _SILENCE_SHARE of its session timeout. Without requests
        the session's timeout runs as well. Both times count from the last ping or request, which may be some time ago.
        """
        for stream, passes in ((self._up, requests), (self._down, answers)):
            if passes:
                stream.release()
            else:
                stream.hold()
        if requests and answers:
            self._stop_silence_timer()
        elif self._silence_timer is None and self._client is not None:
            self._silence_timer = self._client_loop().call_at(
                self._last_heard_s() + self._timeout_s * _SILENCE_SHARE, self.abandon
            )
        if not requests:
            self._network.sessions.silent(self.session_id, self._last_heard_s())
        elif self._client is not None:
            self._network.sessions.heard(self.session_id)

    def _last_heard_s(self) -> float:
        """Return when the server last heard of the client: by a request, or by a ping if no request came after it."""
        pinged_s = self._client_loop().time() - self._network.rng.uniform(0, self._timeout_s * _PING_SHARE)
        return max(pinged_s, self._last_request_s)

    def _stop_silence_timer(self) -> None:
        if self._silence_timer is not None:
            self._silence_timer.cancel()
            self._silence_timer = None

    # --- the server's end ------------------------------------------------------------------------------------

    def watch_fired(self, path: str) -> None:
        """Send the event of a watch that has fired."""
        wait_s = delay_s(self._network.rng, self._network.conditions.watch_ms)
        self._down.send(wait_s, partial(self._deliver, NodeChanged(path)))

    def end(self) -> None:
        """End the connection at the server, which no longer knows the client. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._stop_silence_timer()
        self._up.close()
        self._down.close()
        self._client = None
        self._work.clear()
        self.server.forget(self)
        self._network.links.pop(self, None)
        self._network.sessions.silent(self.session_id, self._server_loop().time())

    def close_by_server(self) -> None:
        """Close the connection from the server's side. The client notices once it has received what was sent before."""
        self.session_id = 0
        self._closed_by_server = True
        self._up.close()
        self._work.clear()
        self.server.forget(self)
        self._down.send(0, self.break_down)

    def _receive(self, work: Work, answered: Callable[[Any], None]) -> None:
        self._last_request_s = self._server_loop().time()
        self._work.append((work, answered))
        self._serve()

    def _serve(self) -> None:
        while self._work and not self._serving:
            work, answered = self._work.popleft()
            self._serving = True
            work(self, partial(self._answer, answered))

    def _answer(self, answered: Callable[[Any], None], outcome: Any) -> None:
        self._serving = False
        self._down.send(delay_s(self._network.rng, self._network.conditions.answer_ms), partial(answered, outcome))
        if self._work:
            self._server_loop().call_soon(self._serve)

    def _deliver(self, event: StoreEvent) -> None:
        if self._client is not None:
            self._client.deliver(event)


def _lost_answer(outcome: Any) -> None:
    """Discard the answer that the connection does not survive."""

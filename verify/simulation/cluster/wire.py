"""Carry messages over one simulated connection: delays, order, cuts, closes, and silence.

A connection carries messages of any type. The transports built on it are `verify.simulation.cluster.zeromq_messages`
and `verify.simulation.cluster.tcp_streams`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tidelog.model import Endpoint
from verify.simulation.cluster.network import RETRANSMISSION_MS, Machine, Network
from verify.simulation.timeline import NS_PER_MS, Process

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)


class End(Protocol[M_contra]):
    """The program at one end of a connection. All methods are called in its process."""

    @property
    def process(self) -> Process: ...

    def take(self, message: M_contra) -> None:
        """Take a message that has arrived."""

    def peer_closed(self) -> None:
        """Take the news that the other side has closed. May be called again until this side closes, too."""

    def broken(self, reason: str) -> None:
        """Take the news that the connection has ended for both directions. This side is closed then."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """When the sides of a connection notice that the other side has disappeared.

    hears       returns whether a machine gets signs of life of another one, given the network, the machine and the peer
    client_ms   the range of times after which the client ends a connection without signs of life
    server_ms   the same for the server; None if the server never does so
    """

    hears: Callable[[Network, Machine, Machine], bool]
    client_ms: tuple[int, int]
    server_ms: tuple[int, int] | None


@dataclass(slots=True, eq=False)
class _Side(Generic[M]):
    """One side of a connection, and the messages on their way to it, which arrive in order.

    timeout_ms        the range of `Liveness`
    end               None until the connection exists
    queue             the messages on their way
    last_ns           when the last of them arrives
    stalled           how many of them have met a cut and wait for `Wire.look`
    silent_since_ns   since when this side gets no signs of life of the other; −1 if it does
    """

    machine: Machine
    timeout_ms: tuple[int, int] | None
    end: End[M] | None = None
    is_open: bool = True
    queue: deque[M] = field(default_factory=deque)
    last_ns: int = 0
    stalled: int = 0
    silent_since_ns: int = -1


class Wire(Generic[M]):
    """One connection, which the program `end` on `machine` opens. It exists after a round trip.

    A side learns of the other side's close as soon as the network delivers it.

    number    unique in its network
    unsent    the messages that wait for the connection
    accept    returns the program at the other end when the connection exists; None if the connection is refused
    """

    def __init__(
        self,
        network: Network,
        machine: Machine,
        end: End[M],
        address: Endpoint,
        liveness: Liveness,
        accept: Callable[[Wire[M]], End[M] | None],
    ) -> None:
        self.number = network.add(self)
        self.address = address
        self.unsent: list[M] = []
        self._network = network
        self._hears = liveness.hears
        self._accept = accept
        self._client = _Side(machine, liveness.client_ms, end)
        self._server: _Side[M] = _Side(network.host(address.host), liveness.server_ms)
        self._sides = ((self._client, self._server), (self._server, self._client))
        self._dialling = True
        delay_ns = network.delay_ns() + network.delay_ns()
        end.process.deliver(network.timeline.now_ns + delay_ns, self._connect, end.process)

    def __repr__(self) -> str:
        return f"<Wire {self.number} {self.client.address} -> {self.address}>"

    @property
    def client(self) -> Machine:
        return self._client.machine

    @property
    def server(self) -> Machine:
        return self._server.machine

    # --- what the ends do --------------------------------------------------------------------------------------

    def send(self, message: M) -> None:
        """Send a message from the client to the server, if the client's side is open."""
        if not self._client.is_open:
            return
        if self._dialling:
            self.unsent.append(message)
        else:
            self._carry(message, self._server, self._client)

    def answer(self, message: M) -> None:
        """Send a message from the server to the client, if the server's side is open."""
        if self._server.is_open:
            self._carry(message, self._client, self._server)

    def close_client(self) -> None:
        """Close the client's side. Idempotent."""
        self._close(self._client, self._server)

    def close_server(self) -> None:
        """Close the server's side. Idempotent."""
        self._close(self._server, self._client)

    # --- faults ------------------------------------------------------------------------------------------------

    def lost(self, machine: Machine) -> None:
        """Handle the end of the process on that machine. A machine without power sends no close."""
        for side, peer in self._sides:
            if side.machine is machine and (side.is_open or self._dialling):
                side.is_open = False
                self._notify_closed(peer, side)

    def reset(self) -> None:
        """Break the connection for both sides at once."""
        for side, _ in self._sides:
            self._break(side, "the connection is lost: Connection reset by peer")

    def look(self) -> None:
        """Apply a change of the network: deliver stalled messages, and begin or end the times of silence."""
        if self._dialling:
            return
        network = self._network
        for side, peer in self._sides:
            if side.stalled and network.passes(peer.machine, side.machine):
                stalled, side.stalled = side.stalled, 0
                for _ in range(stalled):
                    self._schedule(side, peer)
        for side, peer in self._sides:
            if side.is_open:
                if not peer.is_open:
                    self._notify_closed(side, peer)
                self._look_for_silence(side, peer)

    def _look_for_silence(self, side: _Side[M], peer: _Side[M]) -> None:
        network = self._network
        if side.timeout_ms is None or self._hears(network, side.machine, peer.machine):
            side.silent_since_ns = -1
        elif side.silent_since_ns < 0 and side.end is not None:
            side.silent_since_ns = now_ns = network.timeline.now_ns
            after_ns = network.rng.randrange(*side.timeout_ms) * NS_PER_MS
            side.end.process.deliver(now_ns + after_ns, self._on_silence, side, peer, now_ns)

    def _on_silence(self, side: _Side[M], peer: _Side[M], since_ns: int) -> None:
        if side.silent_since_ns == since_ns and side.is_open:
            self._break(side, "the connection is lost: Connection timed out")
            self._notify_closed(peer, side)

    # --- connect and close -------------------------------------------------------------------------------------

    def _connect(self, process: Process) -> None:
        """Connect now, or try again later if a cut prevents it."""
        if not self._client.is_open:
            return
        network = self._network
        if not network.reaches_both_ways(self.client, self.server):
            process.deliver(network.timeline.now_ns + RETRANSMISSION_MS * NS_PER_MS, self._connect, process)
            return
        self._dialling = False
        self._server.end = self._accept(self)
        self._server.is_open = self._server.end is not None
        if not self._server.is_open:
            self._break(self._client, "cannot connect: Connection refused")
            return
        unsent, self.unsent = self.unsent, []
        for message in unsent:
            self._carry(message, self._server, self._client)
        self.look()

    def _close(self, side: _Side[M], peer: _Side[M]) -> None:
        if side.is_open:
            side.is_open = False
            self._notify_closed(peer, side)

    def _notify_closed(self, side: _Side[M], peer: _Side[M]) -> None:
        """Tell an open side that its peer has closed, unless a cut or the loss of the peer's power prevents it."""
        network = self._network
        passes = peer.machine.up and network.passes(peer.machine, side.machine)
        if side.is_open and side.end is not None and passes:
            when_ns = max(network.timeline.now_ns + network.delay_ns(), side.last_ns)
            side.end.process.deliver(when_ns, self._tell_closed, side)
        self._forget_if_closed()

    def _tell_closed(self, side: _Side[M]) -> None:
        if side.is_open and side.end is not None:
            side.end.peer_closed()

    def _break(self, side: _Side[M], reason: str) -> None:
        if side.is_open:
            side.is_open = False
            if side.end is not None:
                side.end.process.deliver(self._network.timeline.now_ns, side.end.broken, reason)
        self._forget_if_closed()

    def _forget_if_closed(self) -> None:
        if not self._client.is_open and (not self._server.is_open or self._server.end is None):
            self._network.forget(self)

    # --- messages ----------------------------------------------------------------------------------------------

    def _carry(self, message: M, side: _Side[M], peer: _Side[M]) -> None:
        side.queue.append(message)
        self._schedule(side, peer)

    def _schedule(self, side: _Side[M], peer: _Side[M]) -> None:
        assert side.end is not None, "nothing is sent before the connection exists"
        network = self._network
        side.last_ns = max(side.last_ns, network.timeline.now_ns + network.delay_ns())
        side.end.process.deliver(side.last_ns, self._arrive, side, peer)

    def _arrive(self, side: _Side[M], peer: _Side[M]) -> None:
        network = self._network
        if not network.passes(peer.machine, side.machine):
            side.stalled += 1
            network.stalled[peer.machine.address, side.machine.address] += 1
        elif side.queue:
            message = side.queue.popleft()
            if side.is_open and side.end is not None:
                side.end.take(message)

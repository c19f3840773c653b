"""The ZeroMQ messages between brokers on the simulated network: the counterparts of `Dealer` and `Router`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from node.net.zeromq.router import NOTHING_UNREAD, OnMessage, Unread
from node.net.zeromq.sockets import HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS, MAX_QUEUED
from tidelog.errors import OverloadedError
from tidelog.model import Buffer, Endpoint
from verify.simulation.cluster.network import Machine, Network
from verify.simulation.cluster.wire import Liveness, Wire
from verify.simulation.timeline import Process

Frames = list[memoryview]


def _hears(network: Network, machine: Machine, peer: Machine) -> bool:
    """Return whether ZeroMQ's heartbeats of the peer arrive, which its process sends."""
    return peer.answers and network.passes(peer, machine)


_SILENCE_MS = (HEARTBEAT_TIMEOUT_MS, HEARTBEAT_TIMEOUT_MS + HEARTBEAT_INTERVAL_MS)
_HEARTBEATS = Liveness(_hears, client_ms=_SILENCE_MS, server_ms=_SILENCE_MS)


def _copied(frames: Sequence[Buffer]) -> Frames:
    """Return copies, so that no two processes share memory."""
    return [memoryview(bytes(frame)) for frame in frames]


class SimulatedDealer:
    """A connection of a broker to another broker (`node.net.zeromq.dealer.Line`)."""

    def __init__(
        self,
        network: Network,
        machine: Machine,
        process: Process,
        address: Endpoint,
        on_message: Callable[[Sequence[Buffer]], None],
        on_ended: Callable[[], None],
    ) -> None:
        self.process = process
        self._network = network
        self._on_message = on_message
        self._on_ended = on_ended
        self._wire: Wire[Frames] = Wire(network, machine, self, address, _HEARTBEATS, self._accepted)

    def _accepted(self, wire: Wire[Frames]) -> _Peer | None:
        router = self._network.at(wire.address)
        return router.accept(wire) if isinstance(router, SimulatedRouter) else None

    # --- the interface of a line -------------------------------------------------------------------------------

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send a message to the router. OverloadedError if too many wait for the connection."""
        if len(self._wire.unsent) >= MAX_QUEUED:
            raise OverloadedError(f"the queue to {self._wire.address} is full")
        self._wire.send(_copied(frames))

    def close(self) -> None:
        self._wire.close_client()

    # --- the end of a wire -------------------------------------------------------------------------------------

    def take(self, message: Frames) -> None:
        self._network.arrived(message[0])
        self._on_message(message)

    def peer_closed(self) -> None:
        self._wire.close_client()
        self._on_ended()

    def broken(self, reason: str) -> None:
        self._on_ended()


class SimulatedRouter:
    """An endpoint of a broker for other brokers (`node.net.zeromq.router.Listening`). OSError if it is taken.

    `settle` is called after each message. `on_kafka` is never called, because no simulated client connects to the port
    for brokers.
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        endpoint: Endpoint,
        on_message: OnMessage,
        settle: Callable[[], None],
        on_kafka: Callable[[], None],
    ) -> None:
        self.endpoint = endpoint
        self.process = process
        self._network = network
        self._on_message = on_message
        self._settle = settle
        self._wires: dict[bytes, Wire[Frames]] = {}
        self._is_open = True
        network.bind(endpoint, self)

    def send(self, peer: bytes, frames: list[Buffer]) -> bool:
        wire = self._wires.get(peer)
        if wire is not None:
            wire.answer(_copied(frames))
        return wire is not None

    def unread(self, peer: bytes) -> Unread:
        """Return no responses and no bytes, because the model has no socket buffers."""
        return NOTHING_UNREAD

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._network.unbind(self.endpoint, self)
            wires, self._wires = self._wires, {}
            for wire in wires.values():
                wire.close_server()

    def accept(self, wire: Wire[Frames]) -> _Peer:
        """Return the router's end of a connection."""
        peer = _Peer(self, wire)
        self._wires[peer.name] = wire
        return peer

    def take(self, peer: bytes, frames: Frames) -> None:
        """Pass on a message of a peer."""
        self._network.arrived(frames[0])
        if self._is_open:
            self._on_message(peer, frames)
            self._settle()

    def forget(self, peer: bytes) -> None:
        """Send no more to a peer."""
        self._wires.pop(peer, None)


class _Peer:
    """The end of one connection at a router. `name` is its identity there."""

    def __init__(self, router: SimulatedRouter, wire: Wire[Frames]) -> None:
        self.name = b"%d" % wire.number
        self.process = router.process
        self._router = router
        self._wire = wire

    def take(self, message: Frames) -> None:
        self._router.take(self.name, message)

    def peer_closed(self) -> None:
        self._router.forget(self.name)
        self._wire.close_server()

    def broken(self, reason: str) -> None:
        self._router.forget(self.name)

"""Simulate the network between machines: delays, order within a connection only, and cuts.

TCP loses nothing: a lost segment is sent again, so that this segment and all later ones arrive later. A message that
meets a cut waits and arrives when the cut is healed, unless a heartbeat timeout has ended the connection before.
Messages are copied, so that no two processes share memory.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from node.controller.failure_detector import PROBE_TIMEOUT_MS, ProbeOutcome
from node.net.router import NOTHING_UNREAD, OnMessage, Unread
from tidelog.errors import OverloadedError
from tidelog.model import Buffer, Endpoint
from tidelog.protocol.native.sockets import HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS, MAX_QUEUED
from verify.simulation.timeline import NS_PER_MS, Process, Timeline

#: The delay of the first retransmission of a lost segment. Each further one takes twice as long.
_RETRANSMISSION_MS = 200


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """The range of delays in microseconds per direction, and the share of segments that are lost once or more."""

    delay_us: tuple[int, int] = (100, 1500)
    loss: float = 0.0

    def delay_ns(self, rng: Random) -> int:
        """Return a random delay (ns) of one message, including the retransmissions of lost segments."""
        least_us, most_us = self.delay_us
        delay_ns = int((least_us + rng.random() * (most_us - least_us)) * 1000)
        again_ms = _RETRANSMISSION_MS
        while self.loss and rng.random() < self.loss and again_ms < 10_000:
            delay_ns += again_ms * NS_PER_MS
            again_ms *= 2
        return delay_ns


_USUAL_NS = NetworkConditions().delay_us[1] * 1000


class Machine:
    """One host, with the process that runs on it.

    up   False while the machine has no power; it does not even refuse connections then
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.up = True
        self.process: Process | None = None

    def run(self, process: Process) -> None:
        """Make this the process of the machine, after the previous one has ended."""
        self.process = process

    @property
    def answers(self) -> bool:
        """Return whether a process on this machine would answer a ZeroMQ ping."""
        return self.up and self.process is not None and self.process.alive and not self.process.held


@dataclass(slots=True)
class _Direction:
    """One direction of a connection. Messages arrive in order.

    queue     the messages on their way, each with the function that takes its frames
    last_ns   when the last of them arrives
    stalled   how many of them have met a cut and wait for `Wire.look`
    """

    source: Machine
    target: Machine
    queue: deque[tuple[list[memoryview], Callable[[list[memoryview]], None]]] = field(default_factory=deque)
    last_ns: int = 0
    stalled: int = 0


class Network:
    """All machines, the connections between them, and the cuts.

    conditions   the delays and losses of all directions
    delivered    a checksum over the first frames of all messages that have arrived
    messages     the number of messages that have arrived
    stalled      the number of messages that met a cut, by source and target
    late         the number of delays, also of connects and closes, that were longer than the usual conditions allow
    """

    def __init__(self, timeline: Timeline, rng: Random) -> None:
        self.timeline = timeline
        self.rng = rng
        self.conditions = NetworkConditions()
        self.delivered = 0
        self.messages = 0
        self.late = 0
        self.stalled: Counter[tuple[str, str]] = Counter()
        self._machines: dict[str, Machine] = {}
        self._listening: dict[Endpoint, SimulatedRouter] = {}
        self._wires: dict[Wire, None] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._names = 0

    # --- machines and faults -----------------------------------------------------------------------------------

    def machine(self, address: str) -> Machine:
        """Add a machine with this address, in place of an earlier one."""
        self._machines[address] = machine = Machine(address)
        return machine

    def cut(self, source: str, target: str) -> None:
        """Cut the direction from `source` to `target`; the caller then calls `changed`, which applies it to the
        connections.
        """
        self._cuts.add((source, target))

    def heal(self) -> None:
        """Remove all cuts; the caller then calls `changed`."""
        self._cuts.clear()

    def heal_between(self, one: str, other: str) -> None:
        """Remove the cuts between two machines in both directions; the caller then calls `changed`."""
        self._cuts -= {(one, other), (other, one)}

    def changed(self) -> None:
        """Apply changed cuts and machines to all connections."""
        for wire in list(self._wires):
            wire.look()

    def passes(self, source: Machine, target: Machine) -> bool:
        """Return whether messages from `source` arrive at `target`: the target has power and no cut is between."""
        return target.up and (source.address, target.address) not in self._cuts

    def hang_up(self, machine: Machine) -> None:
        """Close the listeners and connections of a process that has ended, as its kernel does as far as the network
        lets it.

        A machine without power closes no connection towards its peers.
        """
        for endpoint in [each for each in self._listening if each.host == machine.address]:
            del self._listening[endpoint]
        for wire in list(self._wires):
            wire.lost(machine)
        self.changed()

    def reset_connections(self, one: str, other: str) -> int:
        """Break every connection between the two machines, notify both sides, and return the number of connections."""
        between = [wire for wire in self._wires if {wire.client.address, wire.server.address} == {one, other}]
        for wire in between:
            wire.reset()
        return len(between)

    def connections_of(self, machine: Machine) -> Counter[tuple[str, str]]:
        """Return the number of connections of the machine by client and server address."""
        mine = (wire for wire in self._wires if machine in (wire.client, wire.server))
        return Counter((wire.client.address, wire.server.address) for wire in mine)

    # --- what a process sees -----------------------------------------------------------------------------------

    def dial(
        self,
        machine: Machine,
        process: Process,
        address: Endpoint,
        on_message: Callable[[Sequence[Buffer]], None],
        on_ended: Callable[[], None],
    ) -> Wire:
        """Open a connection from a process to an endpoint, and return it at once. Messages wait until it is connected.

        `on_ended` is called when the connection ends for another reason than `close`.
        """
        self._names += 1
        wire = Wire(self, self._names, machine, process, address, on_message, on_ended)
        self._wires[wire] = None
        return wire

    def listen(
        self,
        machine: Machine,
        process: Process,
        endpoint: Endpoint,
        on_message: OnMessage,
        settle: Callable[[], None],
        on_kafka: Callable[[], None],
    ) -> SimulatedRouter:
        """Begin to accept connections at an endpoint. OSError if a process listens there already.

        `settle` is called after each message. `on_kafka` is never called, because no Kafka client is simulated.
        """
        if endpoint in self._listening:
            raise OSError(98, f"cannot listen on {endpoint}: Address already in use")
        router = SimulatedRouter(self, machine, process, endpoint, on_message, settle)
        self._listening[endpoint] = router
        return router

    async def probe(self, machine: Machine, process: Process, endpoint: Endpoint) -> ProbeOutcome:
        """Return whether a connection to the endpoint would be accepted or refused; SILENT after PROBE_TIMEOUT_MS
        if a cut is between, or a machine has no power.
        """
        found = process.create_future()
        target = self._machines[endpoint.host]
        passes = self.passes(machine, target) and self.passes(target, machine)
        if passes:
            outcome = ProbeOutcome.ACCEPTED if endpoint in self._listening else ProbeOutcome.REFUSED
            after_ns = self.delay_ns() + self.delay_ns()
        else:
            outcome, after_ns = ProbeOutcome.SILENT, PROBE_TIMEOUT_MS * NS_PER_MS
        process.deliver(self.timeline.now_ns + after_ns, lambda: None if found.done() else found.set_result(outcome))
        return await found  # type: ignore[no-any-return]

    # --- for the wires -----------------------------------------------------------------------------------------

    def delay_ns(self) -> int:
        """Return a random delay (ns) of one message in one direction, and count an unusual one in `late`."""
        delay_ns = self.conditions.delay_ns(self.rng)
        self.late += delay_ns > _USUAL_NS
        return delay_ns

    def at(self, endpoint: Endpoint) -> SimulatedRouter | None:
        """Return the router that listens at the endpoint, or None."""
        return self._listening.get(endpoint)

    def host(self, address: str) -> Machine:
        return self._machines[address]

    def stop_listening(self, router: SimulatedRouter) -> None:
        if self._listening.get(router.endpoint) is router:
            del self._listening[router.endpoint]

    def forget(self, wire: Wire) -> None:
        self._wires.pop(wire, None)


class Wire:
    """One connection: a `Line` for the process that opened it, and a peer of the router at its other end.

    A side that receives nothing ends the connection after the heartbeat timeout of ZeroMQ. A side learns of the other
    side's close as soon as the network delivers it.
    """

    def __init__(
        self,
        network: Network,
        number: int,
        machine: Machine,
        process: Process,
        address: Endpoint,
        on_message: Callable[[Sequence[Buffer]], None],
        on_ended: Callable[[], None],
    ) -> None:
        self.name = b"%d" % number
        self.client, self.server = machine, network.host(address.host)
        self._network = network
        self._process = process
        self._address = address
        self._on_message = on_message
        self._on_ended = on_ended
        self._router: SimulatedRouter | None = None
        self._to = _Direction(self.client, self.server)
        self._fro = _Direction(self.server, self.client)
        self._unsent: list[list[memoryview]] = []
        self._dialling = True
        self._client_open = self._server_open = True
        self._client_silence_ns = self._server_silence_ns = -1
        self._connect()

    def __repr__(self) -> str:
        return f"<Wire {self.name.decode()} {self.client.address} -> {self._address}>"

    # --- the side that opened it -------------------------------------------------------------------------------

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send a message to the router, if this side is open. OverloadedError if too many wait for the connection."""
        if not self._client_open:
            return
        copied = [memoryview(bytes(frame)) for frame in frames]
        if self._dialling:
            if len(self._unsent) >= MAX_QUEUED:
                raise OverloadedError(f"the queue to {self._address} is full")
            self._unsent.append(copied)
        else:
            self._carry(self._to, copied, self._at_server)

    def close(self) -> None:
        """Close the side that opened the connection. `on_ended` is not called."""
        if self._client_open:
            self._client_open = False
            self._notify_closed(self._to)

    # --- the side that was dialled -----------------------------------------------------------------------------

    def answer(self, frames: Sequence[Buffer]) -> None:
        """Send a message to the side that opened the connection, if the router's side is open."""
        if self._server_open:
            self._carry(self._fro, [memoryview(bytes(frame)) for frame in frames], self._at_client)

    def router_closed(self) -> None:
        if self._server_open:
            self._server_open = False
            self._notify_closed(self._fro)

    # --- faults ------------------------------------------------------------------------------------------------

    def lost(self, machine: Machine) -> None:
        """Handle the end of the process on that machine. A machine without power sends no close."""
        if machine is self.client and self._client_open:
            self._client_open = False
            if machine.up:
                self._notify_closed(self._to)
        if machine is self.server and (self._server_open or self._dialling):
            self._server_open = False
            if machine.up:
                self._notify_closed(self._fro)
        self._forget_if_closed()

    def reset(self) -> None:
        """Break the connection for both sides at once."""
        self._end_client()
        self._end_server()

    def look(self) -> None:
        """Apply a change of the network: deliver stalled messages, and start or stop the heartbeat timeouts."""
        network, now_ns = self._network, self._network.timeline.now_ns
        if self._dialling:
            return
        for direction in (self._to, self._fro):
            if direction.stalled and network.passes(direction.source, direction.target):
                stalled, direction.stalled = direction.stalled, 0
                for _ in range(stalled):
                    self._schedule(direction)
        if self._client_open:
            if not self._server_open and network.passes(self.server, self.client):
                self._notify_closed(self._fro)
            hears = self.server.answers and network.passes(self.server, self.client)
            if hears:
                self._client_silence_ns = -1
            elif self._client_silence_ns < 0:
                self._client_silence_ns = now_ns
                self._process.deliver(now_ns + self._silence_timeout_ns(), self._on_client_timeout, now_ns)
        if self._server_open and self._router is not None:
            if not self._client_open and network.passes(self.client, self.server):
                self._notify_closed(self._to)
            hears = self.client.answers and network.passes(self.client, self.server)
            if hears:
                self._server_silence_ns = -1
            elif self._server_silence_ns < 0:
                self._server_silence_ns = now_ns
                self._router.process.deliver(now_ns + self._silence_timeout_ns(), self._on_server_timeout, now_ns)

    def _silence_timeout_ns(self) -> int:
        return (HEARTBEAT_TIMEOUT_MS + self._network.rng.randrange(HEARTBEAT_INTERVAL_MS)) * NS_PER_MS

    def _on_client_timeout(self, since_ns: int) -> None:
        if self._client_silence_ns == since_ns:
            self._end_client()

    def _on_server_timeout(self, since_ns: int) -> None:
        if self._server_silence_ns == since_ns:
            self._end_server()

    # --- connect and close ------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Connect: take one round trip, and try again while a cut prevents it."""
        network = self._network
        self._process.deliver(network.timeline.now_ns + network.delay_ns() + network.delay_ns(), self._on_connected)

    def _on_connected(self) -> None:
        if not self._client_open:
            return
        network = self._network
        if not (network.passes(self.client, self.server) and network.passes(self.server, self.client)):
            self._process.deliver(network.timeline.now_ns + _RETRANSMISSION_MS * NS_PER_MS, self._on_connected)
            return
        self._dialling = False
        router = network.at(self._address)
        if router is None:
            self._server_open = False
            self._end_client()
            return
        self._router = router
        router.wires[self.name] = self
        unsent, self._unsent = self._unsent, []
        for frames in unsent:
            self._carry(self._to, frames, self._at_server)
        self.look()

    def _notify_closed(self, direction: _Direction) -> None:
        """Tell the other side that this side has closed, if no cut prevents it."""
        network = self._network
        if network.passes(direction.source, direction.target):
            end = self._end_server if direction is self._to else self._end_client
            process = self._router.process if direction is self._to and self._router else self._process
            process.deliver(max(network.timeline.now_ns + network.delay_ns(), direction.last_ns), end)
        self._forget_if_closed()

    def _end_client(self) -> None:
        if self._client_open:
            self._client_open = False
            if self._process.alive:
                self._on_ended()
            if self._server_open and self._router is not None:
                self._notify_closed(self._to)
        self._forget_if_closed()

    def _end_server(self) -> None:
        if self._server_open:
            self._server_open = False
            if self._router is not None:
                self._router.wires.pop(self.name, None)
            if self._client_open:
                self._notify_closed(self._fro)
        self._forget_if_closed()

    def _forget_if_closed(self) -> None:
        if not self._client_open and (not self._server_open or self._router is None):
            self._network.forget(self)
            if self._router is not None:
                self._router.wires.pop(self.name, None)

    # --- messages ----------------------------------------------------------------------------------------------

    def _carry(
        self, direction: _Direction, frames: list[memoryview], arrive: Callable[[list[memoryview]], None]
    ) -> None:
        direction.queue.append((frames, arrive))
        self._schedule(direction)

    def _schedule(self, direction: _Direction) -> None:
        network = self._network
        now_ns = network.timeline.now_ns
        direction.last_ns = max(direction.last_ns, now_ns + network.delay_ns())
        process = self._process if direction is self._fro or self._router is None else self._router.process
        process.deliver(direction.last_ns, self._arrive, direction)

    def _arrive(self, direction: _Direction) -> None:
        network = self._network
        if not network.passes(direction.source, direction.target):
            direction.stalled += 1
            network.stalled[direction.source.address, direction.target.address] += 1
            return
        if not direction.queue:
            return
        frames, arrive = direction.queue.popleft()
        network.messages += 1
        network.delivered = zlib.crc32(frames[0], network.delivered)
        arrive(frames)

    def _at_server(self, frames: list[memoryview]) -> None:
        if self._server_open and self._router is not None:
            self._router.take(self, frames)

    def _at_client(self, frames: list[memoryview]) -> None:
        if self._client_open:
            self._on_message(frames)


class SimulatedRouter:
    """The simulated counterpart of `node.net.router.Listening`."""

    def __init__(
        self,
        network: Network,
        machine: Machine,
        process: Process,
        endpoint: Endpoint,
        on_message: OnMessage,
        settle: Callable[[], None],
    ) -> None:
        self.endpoint = endpoint
        self.machine = machine
        self.process = process
        self.wires: dict[bytes, Wire] = {}
        self._network = network
        self._on_message = on_message
        self._settle = settle
        self._open = True

    def send(self, peer: bytes, frames: list[Buffer]) -> bool:
        wire = self.wires.get(peer) if self._open else None
        if wire is not None:
            wire.answer(frames)
        return wire is not None

    def unread(self, peer: bytes) -> Unread:
        """Return no responses and no bytes, because the model has no socket buffers."""
        return NOTHING_UNREAD

    def close(self) -> None:
        if self._open:
            self._open = False
            self._network.stop_listening(self)
            for wire in list(self.wires.values()):
                wire.router_closed()
            self.wires.clear()

    def take(self, wire: Wire, frames: list[memoryview]) -> None:
        if self._open:
            self._on_message(wire.name, frames)
            self._settle()

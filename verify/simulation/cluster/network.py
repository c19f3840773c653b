"""Simulate the network between machines: delays, order within a connection only, and cuts.

TCP loses nothing: a lost segment is sent again, so that this segment and all later ones arrive later. A message that
meets a cut waits and arrives when the cut is healed, unless a timeout has ended the connection before. Messages are
copied, so that no two processes share memory. The connections are those of `verify.simulation.cluster.wire`.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Protocol

from node.controller.failure_detector import PROBE_TIMEOUT_MS, ProbeOutcome
from tidelog.model import Buffer, Endpoint
from verify.simulation.timeline import NS_PER_MS, Process, Timeline

#: The delay of the first retransmission of a lost segment. Each further one takes twice as long.
RETRANSMISSION_MS = 200


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """The range of delays in microseconds per direction, and the share of segments that are lost once or more."""

    delay_us: tuple[int, int] = (100, 1500)
    loss: float = 0.0

    def delay_ns(self, rng: Random) -> int:
        """Return a random delay (ns) of one message, including the retransmissions of lost segments."""
        least_us, most_us = self.delay_us
        delay_ns = int((least_us + rng.random() * (most_us - least_us)) * 1000)
        again_ms = RETRANSMISSION_MS
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


class Link(Protocol):
    """A connection between two machines (`verify.simulation.cluster.wire.Wire`), as far as the network uses it."""

    @property
    def client(self) -> Machine: ...

    @property
    def server(self) -> Machine: ...

    @property
    def address(self) -> Endpoint: ...

    def look(self) -> None:
        """Apply a change of the network."""

    def lost(self, machine: Machine) -> None:
        """Handle the end of the process on that machine."""

    def reset(self) -> None:
        """Break the connection for both sides at once."""


class Network:
    """All machines, the connections between them, and the cuts.

    conditions   the delays and losses of all directions
    delivered    a checksum over the bytes that `arrived` was given
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
        self._listening: dict[Endpoint, object] = {}
        self._wires: dict[Link, None] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._numbers = 0

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

    def reaches_both_ways(self, one: Machine, other: Machine) -> bool:
        """Return whether messages pass in both directions."""
        return self.passes(one, other) and self.passes(other, one)

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

    def connections_of(self, machine: Machine) -> Counter[tuple[str, Endpoint]]:
        """Return the number of connections of the machine, by the client's address and the server's endpoint."""
        mine = (wire for wire in self._wires if machine in (wire.client, wire.server))
        return Counter((wire.client.address, wire.address) for wire in mine)

    # --- what a process sees -----------------------------------------------------------------------------------

    async def probe(self, machine: Machine, process: Process, endpoint: Endpoint) -> ProbeOutcome:
        """Return whether a connection to the endpoint would be accepted or refused; SILENT after PROBE_TIMEOUT_MS
        if a cut is between, or a machine has no power.
        """
        found = process.create_future()
        target = self._machines[endpoint.host]
        if self.reaches_both_ways(machine, target):
            outcome = ProbeOutcome.ACCEPTED if endpoint in self._listening else ProbeOutcome.REFUSED
            after_ns = self.delay_ns() + self.delay_ns()
        else:
            outcome, after_ns = ProbeOutcome.SILENT, PROBE_TIMEOUT_MS * NS_PER_MS
        process.deliver(self.timeline.now_ns + after_ns, lambda: None if found.done() else found.set_result(outcome))
        return await found  # type: ignore[no-any-return]

    # --- for the wires and their ends --------------------------------------------------------------------------

    def delay_ns(self) -> int:
        """Return a random delay (ns) of one message in one direction, and count an unusual one in `late`."""
        delay_ns = self.conditions.delay_ns(self.rng)
        self.late += delay_ns > _USUAL_NS
        return delay_ns

    def arrived(self, data: Buffer) -> None:
        """Count a message that an open end has taken, given its bytes or its first frame."""
        self.messages += 1
        self.delivered = zlib.crc32(data, self.delivered)

    def bind(self, endpoint: Endpoint, listener: object) -> None:
        """Have a listener accept the connections to an endpoint. OSError if another one does already."""
        if endpoint in self._listening:
            raise OSError(98, f"cannot listen on {endpoint}: Address already in use")
        self._listening[endpoint] = listener

    def unbind(self, endpoint: Endpoint, listener: object) -> None:
        """Accept no more connections for this listener; no effect if it is not bound."""
        if self._listening.get(endpoint) is listener:
            del self._listening[endpoint]

    def at(self, endpoint: Endpoint) -> object | None:
        """Return the listener that is bound to the endpoint, or None."""
        return self._listening.get(endpoint)

    def host(self, address: str) -> Machine:
        return self._machines[address]

    def add(self, wire: Link) -> int:
        """Add a connection, and return its number, which is unique."""
        self._wires[wire] = None
        self._numbers += 1
        return self._numbers

    def forget(self, wire: Link) -> None:
        self._wires.pop(wire, None)

"""The TCP connections of clients on the simulated network.

The client's end is a line of whole frames (`tidelog.protocol.kafka.client.line.Line`). The broker's end is a transport
of asyncio, below the production protocol of `node.kafka.connection`.

TCP is the work of the kernels. A process that is held keeps its connections, and its kernel accepts further ones. The
client's kernel ends a connection some seconds after the peer's machine has disappeared. The broker's kernel would need
hours, and the listener's idle time is ten minutes, so that the broker learns of a lost client only from the client's
close, which TCP repeats until it arrives.

The model has no socket buffers, so that a transport has never anything left to send.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from node.kafka.server_socket import ServerSocket
from tidelog.model import Buffer, Endpoint
from tidelog.protocol.kafka.client.line import MAX_RESPONSE_BYTES
from tidelog.protocol.kafka.frames import READ_BYTES, TRUSTED_BYTES, FrameError, FrameReader
from verify.simulation.cluster.network import Machine, Network
from verify.simulation.cluster.wire import Liveness, Wire
from verify.simulation.timeline import Process


def _hears(network: Network, machine: Machine, peer: Machine) -> bool:
    """Return whether the peer's kernel acknowledges what the machine sends, also while the process is held."""
    return network.reaches_both_ways(machine, peer)


#: A client's kernel probes an idle connection after 4 s, each second, and gives it up 8 s after the last sign of life
#: (`tidelog.protocol.kafka.client.line`). That sign may have come up to 4 s before the peer disappeared.
_KEEPALIVE = Liveness(_hears, client_ms=(4_000, 9_000), server_ms=None)


class SimulatedTcpLine:
    """A connection of a client to a broker (`tidelog.protocol.kafka.client.line.Line`)."""

    def __init__(
        self,
        network: Network,
        machine: Machine,
        process: Process,
        address: Endpoint,
        on_frame: Callable[[memoryview], None],
        on_ended: Callable[[str], None],
    ) -> None:
        self.process = process
        self._network = network
        self._on_frame = on_frame
        self._on_ended = on_ended
        self._reader = FrameReader(MAX_RESPONSE_BYTES, memoryview(bytearray(READ_BYTES)), trusted_bytes=TRUSTED_BYTES)
        self._is_open = True
        self._wire: Wire[bytes] = Wire(network, machine, self, address, _KEEPALIVE, self._accepted)

    def _accepted(self, wire: Wire[bytes]) -> SimulatedTransport | None:
        listener = self._network.at(wire.address)
        return listener.accept(wire) if isinstance(listener, _TcpListener) else None

    # --- the interface of a line -------------------------------------------------------------------------------

    def send(self, frame: Sequence[Buffer]) -> None:
        self._wire.send(b"".join(frame))

    def close(self) -> None:
        self._is_open = False
        self._wire.close_client()

    # --- the end of a wire -------------------------------------------------------------------------------------

    def take(self, message: bytes) -> None:
        self._network.arrived(message)
        position = 0
        while position < len(message):
            count = _fill(self._reader.space(), message, position)
            position += count
            for frame in self._reader.received(count):
                if not self._is_open:
                    return
                if isinstance(frame, FrameError):
                    self._end(f"the peer {frame.reason}")
                    return
                self._on_frame(frame)

    def peer_closed(self) -> None:
        self._end("the peer closed the connection")

    def broken(self, reason: str) -> None:
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self._is_open:
            self.close()
            self._on_ended(reason)


async def serve(
    network: Network, process: Process, endpoint: Endpoint, protocol: Callable[[], asyncio.BufferedProtocol]
) -> ServerSocket:
    """Accept the connections of clients at an endpoint (`node.kafka.server_socket.Serve`). OSError if it is taken."""
    listener = _TcpListener(network, process, protocol)
    network.bind(endpoint, listener)
    return ServerSocket(endpoint, lambda: network.unbind(endpoint, listener))


class _TcpListener:
    """An endpoint of a broker for clients."""

    def __init__(self, network: Network, process: Process, protocol: Callable[[], asyncio.BufferedProtocol]) -> None:
        self._network = network
        self._process = process
        self._protocol = protocol

    def accept(self, wire: Wire[bytes]) -> SimulatedTransport:
        """Return the broker's end of a connection. Its process sees the connection in its next turn."""
        return SimulatedTransport(self._network, self._process, wire, self._protocol)


class SimulatedTransport(asyncio.Transport):
    """The broker's end of a connection. Bytes that arrive while reading is paused wait, as in a receive buffer."""

    def __init__(
        self,
        network: Network,
        process: Process,
        wire: Wire[bytes],
        protocol: Callable[[], asyncio.BufferedProtocol],
    ) -> None:
        super().__init__({"peername": (wire.client.address, wire.number)})
        self.process = process
        self._network = network
        self._wire = wire
        self._unread: deque[bytes] = deque()
        self._is_reading = True
        self._is_closing = False
        self._has_peer_closed = self._is_end_told = False
        process.deliver(network.timeline.now_ns, self._begin, protocol)

    def _begin(self, protocol: Callable[[], asyncio.BufferedProtocol]) -> None:
        self._protocol = protocol()
        self._protocol.connection_made(self)

    # --- the end of a wire -------------------------------------------------------------------------------------

    def take(self, message: bytes) -> None:
        self._network.arrived(message)
        self._unread.append(message)
        self._read()

    def peer_closed(self) -> None:
        self._has_peer_closed = True
        self._read()

    def broken(self, reason: str) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._protocol.connection_lost(ConnectionResetError(reason))

    def _read(self) -> None:
        """Give the protocol what has arrived, until it pauses reading or closes. Then tell it of the end, if any."""
        unread, protocol = self._unread, self._protocol
        while unread and self._is_reading and not self._is_closing:
            data = unread.popleft()
            count = _fill(protocol.get_buffer(-1), data, 0)
            if count < len(data):
                unread.appendleft(data[count:])
            protocol.buffer_updated(count)
        if self._has_peer_closed and self._is_reading and not self._is_closing and not self._is_end_told:
            self._is_end_told = True
            if not protocol.eof_received():
                self.close()

    # --- the interface of asyncio ------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        self._wire.answer(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self._wire.answer(b"".join(list_of_data))

    def close(self) -> None:
        """Close the connection after what was written. The protocol learns of it in a later turn."""
        if not self._is_closing:
            self._is_closing = True
            self._unread.clear()
            self._wire.close_server()
            self.process.call_soon(self._protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.process.call_soon(self._read)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Have no effect, because nothing waits to be sent."""


def _fill(space: Any, data: bytes, position: int) -> int:
    """Copy bytes from `position` on into the space, as many as fit, and return their number."""
    count = min(len(space), len(data) - position)
    space[:count] = data[position : position + count]
    return count

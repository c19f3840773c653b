"""Implement the client side of the transport; the only module that uses ZeroMQ there.

ZeroMQ alone is not reliable RPC, because it reconnects by itself, and messages that were queued before a network
partition arrive after it. Therefore a `Dealer` is one DEALER socket for one TCP connection. A `Dealer` never
reconnects, so that no message outlives the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import zmq
from zmq.utils.monitor import parse_monitor_message

from node.net.zeromq.sockets import (
    READ_BATCH,
    descriptor_of,
    has_input,
    open_socket,
    receive_message,
    send_message,
)
from tidelog.errors import OverloadedError
from tidelog.model import Buffer, Endpoint

_GONE = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_GONE |= zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH


class Line(Protocol):
    """One transport connection as its opener sees it.

    Messages arrive in the order in which they were sent. None is lost unless the connection ends.
    """

    def send(self, frames: Sequence[Buffer]) -> None:
        """Queue one message, without waiting, even before the connection exists.

        Raises OverloadedError, and sends nothing, if the queue is full.
        """

    def close(self) -> None:
        """Close the connection and discard unsent messages; no callback is called afterwards. Idempotent."""


#: Opens a connection to an address. The callbacks receive each message, and the end if the connection ends by itself;
#: both run in later turns of the loop.
Dial = Callable[[Endpoint, Callable[[Sequence[Buffer]], None], Callable[[], None]], Line]


class Dealer:
    """A `Line` over ZeroMQ: one DEALER socket that connects to `address` and never reconnects.

    on_message   called with the frames of each received message
    on_ended     called if the peer cannot be reached, disconnects or stops answering; the caller then closes the line
    """

    def __init__(
        self, address: Endpoint, on_message: Callable[[Sequence[Buffer]], None], on_ended: Callable[[], None]
    ) -> None:
        self._address = address
        self._on_message = on_message
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._reading = False
        self._socket = open_socket(zmq.DEALER)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(_GONE)
        self._loop.add_reader(descriptor_of(self._monitor), self._on_monitor)
        self._loop.add_reader(descriptor_of(self._socket), self._on_readable)
        self._socket.connect(f"tcp://{address}")
        # The descriptor signals only changes, so events that have already happened are read at once.
        self._loop.call_soon(self._on_monitor)

    def send(self, frames: Sequence[Buffer]) -> None:
        try:
            send_message(self._socket, frames)
        except zmq.Again:
            raise OverloadedError(f"the queue to {self._address} is full") from None
        # A send may consume the readiness that the descriptor would signal.
        if not self._reading and has_input(self._socket):
            self._loop.call_soon(self._on_readable)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if not self._loop.is_closed():
            self._loop.remove_reader(descriptor_of(self._monitor))
            self._loop.remove_reader(descriptor_of(self._socket))
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        # The callbacks lead to the owner, which has this line. No garbage collection is needed without them.
        del self._on_message, self._on_ended

    def _on_readable(self) -> None:
        if not self._open:
            return
        self._reading = True  # sends of the callbacks need no check for input, because the loop below checks
        try:
            for _ in range(READ_BATCH):
                frames = receive_message(self._socket)
                if frames is None:
                    return
                self._on_message(frames)
                if not self._open or not has_input(self._socket):
                    return
        finally:
            self._reading = False
        self._loop.call_soon(self._on_readable)

    def _on_monitor(self) -> None:
        while self._open and has_input(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            if event["event"] & _GONE:
                self._on_ended()
                return

"""The broker's side of ZeroMQ connections; the only module of `node` that uses ZeroMQ.

A ROUTER socket receives the messages of all peers of one endpoint, and sends the responses. Responses that a peer does
not read wait here, complete and in order.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple, Protocol

import zmq
from zmq.utils.monitor import parse_monitor_message

from node.net.zeromq.foreign_peers import ForeignPeers
from node.net.zeromq.sockets import (
    READ_BATCH,
    be_ready_for_large_frames,
    descriptor_of,
    has_input,
    open_socket,
    receive_message,
    send_message,
    send_tracked_message,
)
from tidelog.model import Buffer, Endpoint

PARKED_RETRY_S = 0.005
#: Smaller messages are not tracked, because tracking would cost as much as sending. ZeroMQ queues at most `MAX_QUEUED`
#: of them: 131 MB.
_TRACKED_FROM_BYTES = 1 << 17
#: The longest time to read messages in one iteration of the loop. It is exceeded only if a request waits for a disk.
_LONGEST_READ_S = 0.05


class Unread(NamedTuple):
    """The responses that a peer has not read: two numbers.

    messages     the number of responses that wait here, because the peer's queue in the socket is full
    size_bytes   the bytes of these responses, and of those of at least 128 KB that the socket still holds
    """

    messages: int
    size_bytes: int


NOTHING_UNREAD = Unread(0, 0)


class _Sent(Enum):
    """The result of sending a message."""

    SENT = auto()
    QUEUE_IS_FULL = auto()
    PEER_IS_GONE = auto()


class Listening(Protocol):
    """One bound endpoint that receives and sends messages. `endpoint` has the actual port, also if port 0 was given."""

    endpoint: Endpoint

    def send(self, peer: bytes, frames: list[Buffer]) -> bool:
        """Send a message without waiting, or keep the message here, in order, while the peer's queue is full.

        Return False, and drop the message, if the peer has disconnected or the endpoint is closed. While earlier
        messages of the peer wait here, a disconnection is not noticed.
        """

    def unread(self, peer: bytes) -> Unread:
        """Return how many responses wait here for this peer, and the bytes of all that it has not read.

        Responses below 128 KB that the socket has accepted are not counted.
        """

    def close(self) -> None:
        """Close the endpoint, which then receives and sends nothing. Messages that wait are dropped."""


#: Called with the connection's identity and the frames of a message.
OnMessage = Callable[[bytes, list[memoryview]], None]

#: Binds an endpoint, or raises OSError if it is taken. The third argument is called after each group of messages that
#: were received together, and the fourth after a peer was disconnected that spoke Kafka's protocol.
Listen = Callable[[Endpoint, OnMessage, Callable[[], None], Callable[[], None]], Listening]

_MONITORED = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


@dataclass(slots=True)
class _Parked:
    """The messages for one peer that exceed the queue of its socket, in order."""

    messages: deque[list[Buffer]] = field(default_factory=deque)
    size_bytes: int = 0

    def add(self, frames: list[Buffer]) -> None:
        self.messages.append(frames)
        self.size_bytes += sum(map(len, frames))

    def drop_first(self) -> None:
        self.size_bytes -= sum(map(len, self.messages.popleft()))


class _Tracked:
    """The sizes of large messages that the socket has accepted and has not yet written to the network, by peer."""

    def __init__(self) -> None:
        self._messages: dict[bytes, deque[tuple[zmq.MessageTracker, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, peer: bytes, tracker: zmq.MessageTracker, size_bytes: int) -> None:
        for each in list(self._messages):
            self._drop_sent(each)
        self._messages.setdefault(peer, deque()).append((tracker, size_bytes))

    def size_bytes(self, peer: bytes) -> int:
        self._drop_sent(peer)
        return sum(size_bytes for _, size_bytes in self._messages.get(peer, ()))

    def _drop_sent(self, peer: bytes) -> None:
        messages = self._messages.get(peer)
        while messages and messages[0][0].done:
            messages.popleft()
        if not messages:
            self._messages.pop(peer, None)


class Router:
    """The implementation of `Listening` over ZeroMQ. The constructor binds the endpoint, or raises OSError.

    on_message   called on the event loop for each message, with the peer's identity and the message's frames
    settle       called after each group of messages that were received together
    on_kafka     called after a peer was disconnected that spoke Kafka's protocol
    socket       an unbound ROUTER socket; None: a new one
    """

    def __init__(
        self,
        endpoint: Endpoint,
        on_message: OnMessage,
        settle: Callable[[], None],
        on_kafka: Callable[[], None],
        socket: zmq.Socket[bytes] | None = None,
    ) -> None:
        self._on_message = on_message
        self._settle = settle
        self._on_kafka = on_kafka
        self._foreign_peers = ForeignPeers()
        be_ready_for_large_frames()
        self._socket = socket or open_socket(zmq.ROUTER)
        self._parked: dict[bytes, _Parked] = {}
        self._tracked = _Tracked()
        self._reading = self._recheck_due = False
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        try:
            self._socket.bind(f"tcp://{endpoint}")
        except zmq.ZMQError as error:
            self._socket.close(linger=0)
            raise OSError(error.errno, f"cannot listen on {endpoint}: {os.strerror(error.errno or 0)}") from None
        bound = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.endpoint = Endpoint(endpoint.host, int(bound.rpartition(":")[2]))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor_of(self._socket), self._on_readable)
        self._open = True
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(_MONITORED)
        self._loop.add_reader(descriptor_of(self._monitor), self._on_monitor)
        # The descriptor signals only changes, so events that have already happened are read at once.
        self._loop.call_soon(self._on_monitor)

    def send(self, peer: bytes, frames: list[Buffer]) -> bool:
        if not self._open:
            return False
        if self._parked and (parked := self._parked.get(peer)):
            parked.add(frames)
            return True
        sent = self._try_send(peer, frames)
        if sent is _Sent.QUEUE_IS_FULL:
            parked = self._parked[peer] = _Parked()
            parked.add(frames)
            self._loop.call_later(PARKED_RETRY_S, self._send_parked, peer)
        self._recheck()
        return sent is not _Sent.PEER_IS_GONE

    def unread(self, peer: bytes) -> Unread:
        if not self._parked and not self._tracked:
            return NOTHING_UNREAD
        tracked, parked = self._tracked.size_bytes(peer), self._parked.get(peer)
        return Unread(len(parked.messages), tracked + parked.size_bytes) if parked else Unread(0, tracked)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(descriptor_of(self._monitor))
        self._loop.remove_reader(descriptor_of(self._socket))
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)

    def _on_monitor(self) -> None:
        while self._open and has_input(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            match event["event"]:
                case zmq.EVENT_ACCEPTED:
                    self._foreign_peers.accepted(event["value"])
                case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._foreign_peers.succeeded()
                case zmq.EVENT_DISCONNECTED:
                    if self._foreign_peers.disconnected(event["value"]):
                        self._on_kafka()
                case _:
                    self._foreign_peers.failed()

    def _on_readable(self) -> None:
        self._reading = self._recheck_due = True
        until = time.monotonic() + _LONGEST_READ_S
        try:
            for _ in range(READ_BATCH):
                message = receive_message(self._socket) if self._open else None
                if message is None:
                    self._recheck_due = False
                    break
                peer, *frames = message
                self._on_message(bytes(peer), frames)
                if not self._open or not has_input(self._socket):
                    self._recheck_due = False
                    break
                if time.monotonic() > until:
                    break
            self._settle()
        finally:
            self._reading = False
            if self._recheck_due:
                self._recheck()

    def _recheck(self) -> None:
        """Read again if input has arrived during a send.

        The descriptor of a ZeroMQ socket signals new input only once, and a send may consume that signal.
        """
        if self._reading:
            self._recheck_due = True  # one check after the loop covers all responses that are sent meanwhile
        elif self._open and has_input(self._socket):
            self._loop.call_soon(self._on_readable)

    def _try_send(self, peer: bytes, frames: list[Buffer]) -> _Sent:
        size_bytes = sum(map(len, frames))
        try:
            if size_bytes < _TRACKED_FROM_BYTES:
                send_message(self._socket, [peer, *frames])
            else:
                self._tracked.add(peer, send_tracked_message(self._socket, [peer, *frames]), size_bytes)
        except zmq.Again:
            return _Sent.QUEUE_IS_FULL
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return _Sent.PEER_IS_GONE
        return _Sent.SENT

    def _send_parked(self, peer: bytes) -> None:
        """Send the parked messages of a peer, and set a timer for the next attempt while any are left."""
        if not self._open:
            return
        parked = self._parked[peer]
        while parked.messages and self._try_send(peer, parked.messages[0]) is not _Sent.QUEUE_IS_FULL:
            parked.drop_first()
        if parked.messages:
            self._loop.call_later(PARKED_RETRY_S, self._send_parked, peer)
        else:
            del self._parked[peer]
        self._recheck()

"""The answering side's line: the only module that touches ZeroMQ there.

A ROUTER socket takes the messages of all peers of one endpoint, and answers them. What a peer does not read waits
here for it, whole and in order.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import zmq

from tidelog.model import Buffer, Endpoint
from tidelog.protocol.native.sockets import (
    READ_BATCH,
    be_ready_for_large_frames,
    descriptor_of,
    has_input,
    open_socket,
    receive_message,
    send_message,
    send_tracked_message,
)

PARKED_RETRY_S = 0.005
#: Of smaller messages, which would cost as much to track as to send, ZeroMQ takes no more than `MAX_QUEUED`: 131 MB.
_TRACKED_FROM_BYTES = 1 << 17
#: After so long the loop turns before more is read: what was read had to wait for a disk.
_LONGEST_READ_S = 0.05


class Unread(NamedTuple):
    """What waits for a peer that does not read: messages that its socket takes no more, and bytes, also in there."""

    messages: int
    size_bytes: int


NOTHING_UNREAD = Unread(0, 0)


class Listening(Protocol):
    """One endpoint at which messages are taken. `endpoint` has the real port (0 lets the system choose)."""

    endpoint: Endpoint

    def send(self, peer: bytes, frames: list[Buffer]) -> None:
        """Without waiting; what is for a peer that is gone is forgotten."""

    def unread(self, peer: bytes) -> Unread:
        """What waits for this peer, which does not read it."""

    def close(self) -> None:
        """Takes and sends nothing any more."""


#: Called with the name of the connection and the frames of a message.
OnMessage = Callable[[bytes, list[memoryview]], None]

#: Takes messages at an endpoint; OSError where it is taken. The last is called after all that had come was handed on.
Listen = Callable[[Endpoint, OnMessage, Callable[[], None]], Listening]


@dataclass(slots=True)
class _Parked:
    """Of one peer: the messages that its socket had no room for, in their order."""

    messages: deque[list[Buffer]] = field(default_factory=deque)
    size_bytes: int = 0

    def add(self, frames: list[Buffer]) -> None:
        self.messages.append(frames)
        self.size_bytes += sum(map(len, frames))

    def drop_first(self) -> None:
        self.size_bytes -= sum(map(len, self.messages.popleft()))


class _Leaving:
    """Large messages that a socket has taken, and has not yet given to the network; by peer."""

    def __init__(self) -> None:
        self._messages: dict[bytes, deque[tuple[zmq.MessageTracker, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, peer: bytes, tracker: zmq.MessageTracker, size_bytes: int) -> None:
        for each in list(self._messages):
            self._forget_what_left(each)
        self._messages.setdefault(peer, deque()).append((tracker, size_bytes))

    def size_bytes(self, peer: bytes) -> int:
        self._forget_what_left(peer)
        return sum(size_bytes for _, size_bytes in self._messages.get(peer, ()))

    def _forget_what_left(self, peer: bytes) -> None:
        messages = self._messages.get(peer)
        while messages and messages[0][0].done:
            messages.popleft()
        if not messages:
            self._messages.pop(peer, None)


class Router:
    """`Listening` over ZeroMQ."""

    def __init__(
        self,
        endpoint: Endpoint,
        on_message: OnMessage,
        settle: Callable[[], None],
        socket: zmq.Socket[bytes] | None = None,
    ) -> None:
        self._on_message = on_message
        self._settle = settle
        be_ready_for_large_frames()
        self._socket = socket or open_socket(zmq.ROUTER)
        self._parked: dict[bytes, _Parked] = {}
        self._leaving = _Leaving()
        self._reading = self._look_due = False
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

    def send(self, peer: bytes, frames: list[Buffer]) -> None:
        if not self._open:
            return
        if self._parked and (parked := self._parked.get(peer)):
            parked.add(frames)
            return
        if not self._try_send(peer, frames):
            parked = self._parked[peer] = _Parked()
            parked.add(frames)
            self._loop.call_later(PARKED_RETRY_S, self._send_parked, peer)
        self._look_again()

    def unread(self, peer: bytes) -> Unread:
        if not self._parked and not self._leaving:
            return NOTHING_UNREAD
        leaving, parked = self._leaving.size_bytes(peer), self._parked.get(peer)
        return Unread(len(parked.messages), leaving + parked.size_bytes) if parked else Unread(0, leaving)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(descriptor_of(self._socket))
        self._socket.close(linger=0)

    def _on_readable(self) -> None:
        self._reading = self._look_due = True
        until = time.monotonic() + _LONGEST_READ_S
        try:
            for _ in range(READ_BATCH):
                message = receive_message(self._socket) if self._open else None
                if message is None:
                    self._look_due = False
                    break
                peer, *frames = message
                self._on_message(bytes(peer), frames)
                if not self._open or not has_input(self._socket):
                    self._look_due = False
                    break
                if time.monotonic() > until:
                    break
            self._settle()
        finally:
            self._reading = False
            if self._look_due:
                self._look_again()

    def _look_again(self) -> None:
        if self._reading:
            self._look_due = True  # once, for all that is answered meanwhile
        elif self._open and has_input(self._socket):
            self._loop.call_soon(self._on_readable)

    def _try_send(self, peer: bytes, frames: list[Buffer]) -> bool:
        """False where the peer's queue is full; an answer to a peer that is gone counts as sent."""
        size_bytes = sum(map(len, frames))
        try:
            if size_bytes < _TRACKED_FROM_BYTES:
                send_message(self._socket, [peer, *frames])
            else:
                self._leaving.add(peer, send_tracked_message(self._socket, [peer, *frames]), size_bytes)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
        return True

    def _send_parked(self, peer: bytes) -> None:
        """A timer runs for a peer as long as answers wait for it."""
        if not self._open:
            return
        parked = self._parked[peer]
        while parked.messages and self._try_send(peer, parked.messages[0]):
            parked.drop_first()
        if parked.messages:
            self._loop.call_later(PARKED_RETRY_S, self._send_parked, peer)
        else:
            del self._parked[peer]
        self._look_again()

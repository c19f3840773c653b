"""Carry whole frames over one TCP connection, which never reconnects."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, cast

from tidelog.errors import OverloadedError
from tidelog.model import Buffer, Endpoint
from tidelog.protocol.kafka.frames import (
    PROTOCOL_BYTES,
    READ_BYTES,
    TRUSTED_BYTES,
    FrameError,
    FrameReader,
    recognized_protocol,
)

#: The largest response that is accepted. A broker answers a fetch with one batch that is larger than the limit of the
#: request, and a batch has at most `message.max.bytes`, whose largest value is 2 GiB.
MAX_RESPONSE_BYTES = 1 << 30
#: Bytes of requests that the socket has not accepted yet. Beyond this number no further request is sent.
MAX_UNSENT_BYTES = 64 * 1024 * 1024
#: TCP keepalive: an idle connection is probed after 4 s, then once a second, and ends if four probes fail. A connection
#: whose peer acknowledges no bytes for 8 s has ended. Some operating systems lack some of these options.
_TCP_OPTIONS = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 8_000}

#: How long a line listens for the first bytes of a peer that has closed a connection without a byte. A peer that speaks
#: first does so at once.
_LISTEN_S = 0.2


class Line(Protocol):
    """One transport connection as its opener sees it. Frames arrive in the order in which they were sent."""

    def send(self, frame: Sequence[Buffer]) -> None:
        """Queue the parts of one frame, without waiting, even before the connection exists.

        Raises OverloadedError, and sends nothing, if too many bytes wait to be sent.
        """

    def close(self) -> None:
        """Close the connection and discard unsent bytes; no callback is called afterwards. Idempotent."""


class OnEnded(Protocol):
    """Receives the reason if a connection ends by itself, and the name of the other protocol that the peer speaks.

    The name is empty if no other protocol was recognized.
    """

    def __call__(self, reason: str, other_protocol: str = "") -> None: ...


#: Opens a connection to an address. The callbacks receive each frame, without its size, and the reason of the end if
#: the connection ends by itself; both run in later turns of the loop.
Dial = Callable[[Endpoint, Callable[[memoryview], None], OnEnded], Line]


class TcpLine(asyncio.BufferedProtocol):
    """A `Line` over TCP.

    on_frame   called with each received frame
    on_ended   called if the peer cannot be reached, disconnects, or sends bytes that are no frame; the line is closed

    A server of another protocol may close the connection when it receives the first request, before its own first bytes
    have arrived. If a peer disconnects without a byte, the line therefore opens another connection and sends nothing,
    so that the reason of the end names the peer's protocol.
    """

    def __init__(self, address: Endpoint, on_frame: Callable[[memoryview], None], on_ended: OnEnded) -> None:
        self._address = address
        self._on_frame = on_frame
        self._on_ended = on_ended
        self._reader = FrameReader(MAX_RESPONSE_BYTES, memoryview(bytearray(READ_BYTES)), trusted_bytes=TRUSTED_BYTES)
        self._transport: asyncio.Transport | None = None
        self._unsent: list[Buffer] = []  # until the connection exists
        self._unsent_bytes = 0
        self._is_open = True
        self._has_received = False
        self._task = asyncio.get_running_loop().create_task(self._connect(), name=f"the connection to {address}")

    def send(self, frame: Sequence[Buffer]) -> None:
        transport = self._transport
        waiting = self._unsent_bytes if transport is None else transport.get_write_buffer_size()
        if waiting > MAX_UNSENT_BYTES:
            raise OverloadedError(f"{waiting} bytes wait to be sent to {self._address}")
        if transport is None:
            self._unsent += frame
            self._unsent_bytes += sum(map(len, frame))
        else:
            transport.writelines(cast(Sequence[bytes], frame))

    def close(self) -> None:
        self._is_open = False
        self._unsent.clear()
        self._unsent_bytes = 0
        if self._transport is not None:
            self._transport.abort()
        elif not self._task.get_loop().is_closed():
            self._task.cancel()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self, self._address.host, self._address.port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            self._end(f"cannot connect: {reason}")

    async def _listen(self, reason: str) -> None:
        """Open another connection, send nothing, and end the line.

        The reason of the end names the peer's protocol if the peer sends its first bytes within `_LISTEN_S`.
        """
        protocol = ""
        try:
            with suppress(OSError, asyncio.IncompleteReadError):  # a TimeoutError is an OSError
                async with asyncio.timeout(_LISTEN_S):
                    reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
                    try:
                        protocol = recognized_protocol(await reader.readexactly(PROTOCOL_BYTES))
                    finally:
                        writer.close()
        finally:
            self._end(f"the peer speaks {protocol} instead of Kafka's protocol" if protocol else reason, protocol)

    def _end(self, reason: str, other_protocol: str = "") -> None:
        if self._is_open:
            self.close()
            self._on_ended(reason, other_protocol)

    # --- asyncio's callbacks -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._is_open:
            self._transport.abort()
            return
        _probe_when_idle(transport.get_extra_info("socket"))
        unsent, self._unsent = self._unsent, []
        self._unsent_bytes = 0
        if unsent:
            self._transport.writelines(cast(Sequence[bytes], unsent))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the peer closed the connection" if exc is None else f"the connection is lost: {exc}"
        self._transport = None
        is_closed_by_peer = exc is None or isinstance(exc, ConnectionResetError)
        if self._is_open and is_closed_by_peer and not self._has_received:
            self._task = asyncio.get_running_loop().create_task(
                self._listen(reason), name=f"the second connection to {self._address}"
            )
        else:
            self._end(reason)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._has_received = True
        for frame in self._reader.received(nbytes):
            if not self._is_open:
                return
            if isinstance(frame, FrameError):
                self._end(f"the peer {frame.reason}", frame.protocol)
                return
            self._on_frame(frame)


def _probe_when_idle(connected: socket.socket | None) -> None:
    """Have the kernel find out soon that the peer's machine is gone or cannot be reached."""
    if connected is None:
        return
    with suppress(OSError):  # the peer may have gone already
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _TCP_OPTIONS.items():
            if (option := getattr(socket, name, None)) is not None:
                connected.setsockopt(socket.IPPROTO_TCP, option, value)

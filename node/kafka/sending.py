"""Send responses.

The kernel sends records from their file (sendfile) if the transport has nothing left to send, as far as the socket
accepts bytes at once. All other bytes are read and given to the transport, because the file may change before the
socket accepts more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import cast

from tidelog.model import Buffer
from tidelog.protocol.kafka.codec import Part

_BUFFERS = (bytes, bytearray, memoryview)


def read_stored(parts: Sequence[Part]) -> list[Buffer]:
    """Return the parts, with stored bytes read. Raise StorageError if that fails."""
    return [part if isinstance(part, _BUFFERS) else part.read() for part in parts]


def send(transport: asyncio.Transport, parts: Sequence[Part]) -> None:
    """Send the parts after all that the transport was given before.

    Raise StorageError if stored bytes cannot be read, and OSError if the socket reports that the connection is lost.
    After either error a part of the response may have been sent, so the connection must be closed.
    """
    if len(parts) > 1 and not all(isinstance(part, _BUFFERS) for part in parts):
        if transport.get_write_buffer_size() == 0:
            parts = _send_past_transport(transport, parts)
        parts = read_stored(parts)
    if parts:
        transport.writelines(cast(Sequence[Buffer], parts))


def _send_past_transport(transport: asyncio.Transport, parts: Sequence[Part]) -> Sequence[Part]:
    """Send to the transport's socket itself, and return the parts that the socket does not accept now."""
    accepted = transport.get_extra_info("socket")
    if accepted is None:
        return parts  # the network is simulated
    raw = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=accepted.fileno())
    try:
        for number, part in enumerate(parts):
            sent, size = 0, len(part)
            while sent < size:
                accepted = _send_part(raw, part, sent, is_last=number + 1 == len(parts))
                if not accepted:
                    return [_rest(part, sent), *parts[number + 1 :]]
                sent += accepted
    finally:
        raw.detach()  # the transport owns the descriptor
    return ()


def _send_part(raw: socket.socket, part: Part, begin: int, *, is_last: bool) -> int:
    if not isinstance(part, _BUFFERS):
        return part.send(raw.fileno(), begin)
    try:
        # With MSG_MORE the kernel waits for the next part, so that a small part is no packet of its own.
        return raw.send(memoryview(part)[begin:], 0 if is_last else socket.MSG_MORE)
    except BlockingIOError:
        return 0


def _rest(part: Part, begin: int) -> Buffer:
    return memoryview(part)[begin:] if isinstance(part, _BUFFERS) else part.read(begin)

"""Answer a client of Tidelog's own protocol at a Kafka listener, so that the client learns where it must connect.

Such a client speaks ZMTP 3 (ZeroMQ's protocol on TCP) and waits for the response to its first request. Each side sends
a greeting of 64 bytes and the command READY, then messages of one or more frames. `opening` returns the greeting and
READY together. `received` reads one request and refuses it. Everything else that the peer sends is ignored.
"""

from __future__ import annotations

from struct import Struct

from tidelog.errors import BrokerError, ProtocolError
from tidelog.protocol.codec import ResponseHeader, decode_request, encode
from tidelog.protocol.kafka.frames import FrameError

_GREETING = b"\xff" + bytes(7) + b"\x01\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x05READY" + b"\x0bSocket-Type" + b"\x00\x00\x00\x06ROUTER"
#: The bits of a frame's first byte.
_MORE, _LONG, _COMMAND = 1, 2, 4
_SHORT_SIZE, _LONG_SIZE = Struct(">B"), Struct(">Q")
#: A handshake and a first request have a few hundred bytes.
_MOST_BYTES = 4 * 1024


class RefusedNativeClient:
    """The ZMTP side of one connection, without its socket: bytes go in, and bytes to send come out.

    refusal   the error with which the first request is answered
    """

    def __init__(self, refusal: BrokerError) -> None:
        self._refusal = refusal
        self._unread = bytearray()
        self._received_bytes = 0
        self._is_greeted = False
        self._is_answered = False
        self._envelope: bytes | None = None

    @property
    def held_bytes(self) -> int:
        """Return the memory that the bytes take which have arrived and are not answered yet."""
        return len(self._unread) + len(self._envelope or b"")

    @staticmethod
    def opening() -> bytes:
        """Return the bytes to send before anything else: the greeting and the command READY."""
        return _GREETING + _frame(_READY, _COMMAND)

    def received(self, data: bytes) -> bytes:
        """Return the bytes to send after these bytes have arrived: the answer, once, and otherwise none.

        Raise FrameError if the peer has sent more than _MOST_BYTES in all, or a request that cannot be read.
        """
        self._received_bytes += len(data)
        if self._received_bytes > _MOST_BYTES:
            raise FrameError(f"sent more than {_MOST_BYTES} bytes before it closed the connection")
        if self._is_answered:
            return b""
        self._unread += data
        if not self._is_greeted:
            if len(self._unread) < len(_GREETING):
                return b""
            del self._unread[: len(_GREETING)]
            self._is_greeted = True
        while (frame := self._next_frame()) is not None:
            flags, body = frame
            if flags & _COMMAND:
                continue
            # Only the first frame of a request is read, because it has the header.
            if self._envelope is None:
                self._envelope = body
            if not flags & _MORE:
                return self._answer(self._envelope)
        return b""

    def _next_frame(self) -> tuple[int, bytes] | None:
        """Remove the next frame, and return its first byte and its body; None if it has not arrived whole."""
        if not self._unread:
            return None
        flags = self._unread[0]
        size_format = _LONG_SIZE if flags & _LONG else _SHORT_SIZE
        begin = 1 + size_format.size
        if len(self._unread) < begin:
            return None
        (size,) = size_format.unpack_from(self._unread, 1)
        if len(self._unread) < begin + size:
            return None
        body = bytes(self._unread[begin : begin + size])
        del self._unread[: begin + size]
        return flags, body

    def _answer(self, request: bytes) -> bytes:
        try:
            header, _ = decode_request([memoryview(request)])
        except ProtocolError as error:
            raise FrameError(f"sent a request that cannot be read: {error}") from None
        self._is_answered = True
        self._envelope = None
        self._unread.clear()
        (envelope,) = encode(ResponseHeader(header.correlation_id, self._refusal.code, str(self._refusal)))
        return _frame(bytes(envelope))


def _frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) > 255:
        return bytes([flags | _LONG]) + _LONG_SIZE.pack(len(body)) + body
    return bytes([flags]) + _SHORT_SIZE.pack(len(body)) + body

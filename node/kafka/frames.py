"""Split a stream of bytes into frames: a size (int32), then so many bytes.

The claimed size is bounded, and memory is allocated as bytes arrive, so that a claim alone costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

_SIZE = Struct(">i")
#: The buffer that a connection reads into. A larger frame gets a buffer of its own.
_READ_BYTES = 64 * 1024
#: The first buffer of a larger frame; the buffer doubles until the frame fits.
_LARGE_BYTES = 1024 * 1024


class FrameError(Exception):
    """The peer sent bytes that are no frame; `reason` completes the sentence "the peer …"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class FrameReader:
    """Owns the read buffers of one connection: `space` is filled by the transport, `received` returns the frames.

    max_frame_bytes   a larger frame is refused (`socket.request.max.bytes`)
    """

    __slots__ = ("_buffer", "_end", "_is_first", "_large", "_large_size", "_max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray(_READ_BYTES)
        self._end = 0  # the number of bytes in the current buffer
        self._large: bytearray | None = None
        self._large_size = 0
        self._is_first = True

    @property
    def held_bytes(self) -> int:
        """Return the size of the buffer of a larger frame that has not arrived as a whole."""
        return 0 if self._large is None else len(self._large)

    def space(self) -> memoryview:
        """Return the memory to fill with the next bytes; never empty."""
        if self._large is None:
            return memoryview(self._buffer)[self._end :]
        if self._end == len(self._large):
            grown = bytearray(min(self._large_size, 2 * len(self._large)))
            grown[: self._end] = self._large
            self._large = grown
        return memoryview(self._large)[self._end :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Yield the frames that `count` more bytes complete. Raise FrameError if the bytes are no frame."""
        self._end += count
        if self._large is not None:
            if self._end < self._large_size:
                return
            frame, self._large, self._end = memoryview(self._large), None, 0
            yield frame.toreadonly()
            return
        begin, received = 0, memoryview(self._buffer)
        while self._end - begin >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._buffer, begin)
            self._check(size, begin)
            body = begin + _SIZE.size
            if self._end - body < size:
                break
            # Handlers may keep the frame, and the buffer is used again.
            yield memoryview(bytes(received[body : body + size]))
            begin = body + size
        left = bytes(received[begin : self._end])
        if len(left) >= _SIZE.size and (size := _SIZE.unpack_from(left)[0]) > _READ_BYTES - _SIZE.size:
            held = left[_SIZE.size :]
            self._large, self._large_size, self._end = bytearray(min(size, _LARGE_BYTES)), size, len(held)
            self._large[: len(held)] = held
            return
        self._buffer[: len(left)] = left
        self._end = len(left)

    def _check(self, size: int, begin: int) -> None:
        if self._is_first:
            self._is_first = False
            if (other := _other_protocol(bytes(self._buffer[begin : begin + 4]))) is not None:
                raise FrameError(f"speaks {other}, but this port speaks Kafka's protocol")
        if not 0 <= size <= self._max_frame_bytes:
            raise FrameError(f"claims a request of {size} bytes; at most {self._max_frame_bytes} are allowed")


def _other_protocol(start: bytes) -> str | None:
    """Return the name of the protocol that begins with these four bytes, if clients often try it by mistake."""
    if start in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PRI "):
        return "HTTP"
    if start[:2] == b"\x16\x03":
        return "TLS"
    if start[:2] == b"\xff\x00":
        return "ZeroMQ (Tidelog's own clients use the address of the listener TIDELOG)"
    return None

"""Split a stream of bytes into frames: a size (int32), then so many bytes.

The claimed size is bounded, and a broker allocates memory as bytes arrive: at most twice as much as has arrived of a
large frame. A connection that sends nothing, or only a large size, holds almost no memory. A client allocates up to
`TRUSTED_BYTES` of a large frame at once, because it has few connections and receives only what it has requested.
"""

from __future__ import annotations

from struct import Struct

_SIZE = Struct(">i")
#: Size of the buffer that all connections of one event loop read into.
READ_BYTES = 64 * 1024
#: A frame that does not fit into the shared buffer gets its own buffer after this many of its bytes have arrived. That
#: buffer is twice as large as the bytes in it, unless the reader trusts its peer, and doubles until the frame fits.
_LARGE_BYTES = READ_BYTES // 2
#: After a read with more frames than this, the connection reads fewer bytes at once. Splitting a whole buffer of the
#: smallest frames would delay other connections by half a millisecond.
_MANY_FRAMES = 100
_READ_BYTES_OF_MANY = 4 * 1024

#: A client allocates so much memory of a large frame when the frame begins, so that the buffer need not grow.
TRUSTED_BYTES = 16 * 1024 * 1024

#: The number of first bytes that show which protocol a peer speaks.
PROTOCOL_BYTES = 4

HTTP, TLS, ZEROMQ = "HTTP", "TLS", "ZeroMQ"


class FrameError(Exception):
    """The reason to close a connection, in most cases bytes of the peer that are no frame, or no allowed request.

    reason     completes the sentence "the peer …"
    protocol   the name of the other protocol that the peer speaks; empty if none was recognized
    """

    def __init__(self, reason: str, protocol: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.protocol = protocol


class FrameReader:
    """Owns the bytes of one connection that are no whole frame yet.

    The connection has `space` filled with the next bytes, and then calls `received`.

    max_frame_bytes   a larger frame is refused (`socket_request_max_bytes`)
    shared            the buffer of READ_BYTES of the event loop; its bytes are used before another connection reads
    trusted_bytes     the memory that a large frame gets at once, at most its size
    """

    __slots__ = (
        "_has_failed",
        "_held",
        "_is_first",
        "_large",
        "_large_end",
        "_large_size",
        "_max_frame_bytes",
        "_read_bytes",
        "_shared",
        "_trusted_bytes",
    )

    def __init__(self, max_frame_bytes: int, shared: memoryview, *, trusted_bytes: int = 0) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._trusted_bytes = trusted_bytes
        self._shared = shared
        self._read_bytes = len(shared)
        self._held = b""  # the first bytes of a frame, fewer than the shared buffer has
        self._large: bytearray | None = None
        self._large_end = 0
        self._large_size = 0
        self._is_first = True
        self._has_failed = False

    @property
    def held_bytes(self) -> int:
        """Return the memory that the part of a frame takes that has arrived."""
        return len(self._held) if self._large is None else len(self._large)

    def space(self) -> memoryview:
        """Return the memory to fill with the next bytes; never empty, and valid until `received` is called."""
        if self._large is None:
            held = len(self._held)
            self._shared[:held] = self._held
            return self._shared[held : held + self._read_bytes]
        if self._large_end == len(self._large):
            grown = bytearray(min(self._large_size, 2 * len(self._large)))
            grown[: self._large_end] = self._large
            self._large = grown
        return memoryview(self._large)[self._large_end :]

    def received(self, count: int) -> list[memoryview | FrameError]:
        """Return the frames, without their sizes, that the `count` bytes in `space` complete.

        If the connection begins with another protocol, or if a frame's size is not allowed, the last item is the reason
        to close the connection after the requests before it. All later bytes are ignored.
        """
        if self._has_failed:
            return []
        if self._large is not None:
            self._large_end += count
            if self._large_end < self._large_size:
                return []
            frame, self._large = memoryview(self._large).toreadonly(), None
            return [frame]
        begin, end, shared = 0, len(self._held) + count, self._shared
        frames: list[memoryview | FrameError] = []
        size = 0
        while end - begin >= _SIZE.size:
            (size,) = _SIZE.unpack_from(shared, begin)
            if (error := self._error(size, begin, end)) is not None:
                self._has_failed, self._held = True, b""
                return [*frames, error]
            body = begin + _SIZE.size
            if end - body < size:
                break
            # Handlers may keep the frame, and the buffer is used again.
            frames.append(memoryview(bytes(shared[body : body + size])))
            begin = body + size
        self._read_bytes = _READ_BYTES_OF_MANY if len(frames) > _MANY_FRAMES else len(shared)
        if end - begin >= _LARGE_BYTES and size > len(shared) - _SIZE.size:
            held = shared[begin + _SIZE.size : end]
            self._large = bytearray(min(size, max(2 * len(held), self._trusted_bytes)))
            self._large_size, self._large_end = size, len(held)
            self._large[: len(held)] = held
            self._held = b""
        else:
            self._held = bytes(shared[begin:end])
        return frames

    def _error(self, size: int, begin: int, end: int) -> FrameError | None:
        if self._is_first:
            self._is_first = False
            if protocol := recognized_protocol(bytes(self._shared[begin:end][:PROTOCOL_BYTES])):
                return FrameError(f"speaks {protocol} instead of Kafka's protocol", protocol)
        if not 0 <= size <= self._max_frame_bytes:
            return FrameError(f"claims a frame of {size} bytes; at most {self._max_frame_bytes} are allowed")
        return None


def recognized_protocol(start: bytes) -> str:
    """Return "HTTP", "TLS" or "ZeroMQ" if that protocol begins with these PROTOCOL_BYTES, otherwise ""."""
    if start in (b"GET ", b"POST", b"HEAD", b"PUT ", b"PATC", b"OPTI", b"DELE", b"CONN", b"TRAC", b"PRI ", b"HTTP"):
        return HTTP
    if start[:2] in (b"\x16\x03", b"\x15\x03"):  # a handshake, or the alert of a server that expects one
        return TLS
    if start[:2] == b"\xff\x00":
        return ZEROMQ
    return ""

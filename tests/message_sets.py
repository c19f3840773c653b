"""Messages of the record formats 0 and 1, which clients before Kafka 0.11 send."""

from __future__ import annotations

import zlib
from struct import pack

from tidelog.records import Codec, compress


def message(
    value: bytes | None = b"v",
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 5,
    key: bytes | None = b"k",
    offset: int = 7,
) -> bytes:
    """Return one message with its offset and its size."""
    body = pack(">bb", magic, attributes) + (pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        body += pack(">i", -1) if field is None else pack(">i", len(field)) + field
    return entry(body, offset)


def entry(body: bytes, offset: int = 7) -> bytes:
    """Return a message with this body and a right CRC."""
    return pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapped(
    inner: bytes, codec: Codec, magic: int = 1, *, offset: int = 7, attributes: int = 0, timestamp: int = 5
) -> bytes:
    """Return a compressed message that contains these messages."""
    block = compress(codec, inner)
    return message(block, magic=magic, attributes=attributes | codec, timestamp=timestamp, key=None, offset=offset)

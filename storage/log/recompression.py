"""Compresses a producer's batch with another codec, if the topic's `compression.type` asks for one."""

from __future__ import annotations

from tidelog.model import Buffer
from tidelog.records import HEADER_BYTES, LENGTH_OVERHEAD, BatchHeader, Codec, compress, decompress
from tidelog.records.header import CODEC_MASK, HEADER, seal


def recompress(batch: Buffer, header: BatchHeader, codec: Codec, level: int | None, limit: int) -> bytearray:
    """Return the same records in a new batch with this codec, even if the new batch is larger.

    The records are not validated. CorruptMessageError if they cannot be decompressed; MessageTooLargeError if they have
    more than `limit` bytes when decompressed.
    """
    block = compress(codec, decompress(header.codec, memoryview(batch)[HEADER_BYTES:], limit), level)
    changed = header._replace(
        batch_length=HEADER_BYTES + len(block) - LENGTH_OVERHEAD, attributes=header.attributes & ~CODEC_MASK | codec
    )
    renewed = bytearray(HEADER.pack(*changed))
    renewed += block
    seal(renewed, 0, len(renewed))
    return renewed

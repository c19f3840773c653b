"""The codecs of a batch's block of records, undone within a limit that is kept before memory is spent.

none     the records as they are
gzip     RFC 1952, one member
snappy   as Java's SnappyOutputStream frames it, in blocks of 32 KiB: 82 "SNAPPY" 00, int32 version 1, int32 lowest
         compatible version 1, then for each block int32 length + raw snappy. A bare raw block is read, too: other
         clients send one.
lz4      one frame of independent blocks of 64 KiB: Kafka's Java reader knows no others
zstd     one frame

A few bytes may stand for very many: 1 MiB of zstd for 30 GiB. A size that is declared (by snappy, mostly by zstd and
lz4) is judged before anything is produced; where none is, or it lies, decompression ends at the limit. What is held
meanwhile is hardly more than the limit, and once more the limit where a zstd frame asks for so large a window.
"""

from __future__ import annotations

import io
import sys
import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Protocol

import cramjam
import lz4.frame

from tidelog.errors import CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError
from tidelog.model import Buffer
from tidelog.records.header import Codec

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

#: The most bytes that the records of one batch may have when decompressed, unless a reader says otherwise: many times
#: what a producer collects for a batch, and what a reader can hold.
MAX_DECOMPRESSED_BYTES = 128 << 20
#: The most that a reader can ask for: positions in a column are 32-bit numbers, and several batches share one.
MOST_DECOMPRESSED_BYTES = 1 << 30

_STEP_BYTES = 1 << 20  # most blocks come out in one step
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + Struct(">ii").pack(1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_BLOCK_LENGTH = Struct(">i")


def compress(codec: Codec, data: bytes, level: int | None = None) -> bytes:
    """The block of records as a batch of this codec holds it; `level` is the library's, None its default."""
    match codec:
        case Codec.GZIP:
            return zlib.compress(data, zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=_GZIP_FORMAT)
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return bytes(
                lz4.frame.compress(data, level or 0, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False)
            )
        case Codec.ZSTD:
            return zstd.compress(data, level)
        case _:
            return data


def decompress(codec: int, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """What `compress` was given.

    MessageTooLargeError where that is more than `limit` bytes, CorruptMessageError for what is not one whole block
    of this codec, UnsupportedCompressionTypeError for a codec that nothing defines.
    """
    try:
        match codec:
            case Codec.NONE:
                return bytes(data)
            case Codec.GZIP:
                return _decompress_frame(_Gunzip(), data, limit)
            case Codec.SNAPPY:
                return _decompress_snappy(data, limit)
            case Codec.LZ4:
                _judge(lz4.frame.get_frame_info(data)["content_size"], limit)
                return _decompress_frame(lz4.frame.LZ4FrameDecompressor(), data, limit)
            case Codec.ZSTD:
                _judge(zstd.get_frame_info(data).decompressed_size or 0, limit)
                return _decompress_frame(zstd.ZstdDecompressor(), data, limit)
    except (
        zlib.error,
        cramjam.DecompressionError,
        zstd.ZstdError,
        RuntimeError,
    ) as error:  # lz4 has no class of its own
        raise CorruptMessageError(f"a block of records that is not {Codec(codec).name.lower()}: {error}") from None
    raise UnsupportedCompressionTypeError(f"codec {codec}, which nothing defines")


class _Decompressor(Protocol):
    """What the standard library's decompressors have in common; `decompress(b"")` goes on with what is left."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: Buffer, max_length: int) -> bytes: ...


class _Gunzip:
    """zlib hands back what it has not consumed, where its siblings keep it."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(_GZIP_FORMAT)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: Buffer, max_length: int) -> bytes:
        return self._zlib.decompress(data or self._zlib.unconsumed_tail, max_length)


def _decompress_frame(frame: _Decompressor, data: Buffer, limit: int) -> bytes:
    step = frame.decompress(data, min(limit + 1, _STEP_BYTES))
    if frame.eof:
        whole, size = step, len(step)
    else:
        collected = io.BytesIO()
        size = collected.write(step)
        while step and not frame.eof and size <= limit:
            step = frame.decompress(b"", min(limit + 1 - size, _STEP_BYTES))
            size += collected.write(step)
        whole = collected.getvalue()
    _judge(size, limit)
    if not frame.eof:
        raise CorruptMessageError(f"a compressed block that ends too early, after {size} bytes of records")
    if frame.unused_data:
        raise CorruptMessageError(f"{len(frame.unused_data)} bytes after a compressed block")
    return whole


def _judge(size: int, limit: int) -> None:
    if size > limit:
        raise MessageTooLargeError(f"a batch whose records have more than {limit} bytes when decompressed")


def _compress_snappy(data: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    framed = view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC
    # Gone through twice and never held: a block may be as small as what holds it is large.
    _judge(sum(map(cramjam.snappy.decompress_raw_len, _snappy_blocks(view) if framed else [view])), limit)
    whole = io.BytesIO()
    for block in _snappy_blocks(view) if framed else [view]:
        whole.write(cramjam.snappy.decompress_raw(block))
    return whole.getvalue()


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    at = len(_XERIAL_HEADER)
    while at != len(view):
        start = at + _BLOCK_LENGTH.size
        at = start + int.from_bytes(view[at:start], "big", signed=True)
        if not start < at <= len(view):
            raise CorruptMessageError(f"a snappy block of {at - start} bytes at {start} of {len(view)}")
        yield view[start:at]

"""Compress and decompress a batch's block of records, with a limit on the memory that decompression uses.

none     the records unchanged
gzip     RFC 1952, one member
snappy   the format of Java's SnappyOutputStream, in blocks of 32 KiB: 82 "SNAPPY" 00, int32 version 1, int32 lowest
         compatible version 1, then for each block int32 length + raw snappy. A bare raw block is also decoded, because
         some clients send one.
lz4      one frame of independent blocks of 64 KiB, the only form that Kafka's Java reader accepts
zstd     one frame

A few compressed bytes may expand to very many: 1 MiB of zstd to 30 GiB. A declared size (always in snappy, usually in
zstd and lz4) is checked before any output is produced. Without a declared size, or with a wrong one, decompression
stops at the limit. The memory used is slightly more than the limit, and twice that if a zstd frame needs such a large
window.

The libraries of snappy, lz4 and zstd are imported when a block needs them, because they take 2.5 MB. An import needs a
file descriptor, and so may fail for a while.
"""

from __future__ import annotations

import io
import sys
import zlib
from collections.abc import Iterator
from importlib import import_module
from struct import Struct
from types import ModuleType
from typing import Protocol

from tidelog.errors import (
    CorruptMessageError,
    MessageTooLargeError,
    RequestTimedOutError,
    UnsupportedCompressionTypeError,
)
from tidelog.model import Buffer
from tidelog.records.header import Codec

#: The modules of the libraries.
_SNAPPY = "cramjam"
_LZ4 = "lz4.frame"
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"

#: Default maximum of the decompressed bytes of one batch's records: many times what a producer collects for a batch,
#: and what a reader's memory can hold.
MAX_DECOMPRESSED_BYTES = 128 << 20
#: The largest limit that a reader can set, because positions in a column are 32-bit numbers shared by several batches.
MOST_DECOMPRESSED_BYTES = 1 << 30

_STEP_BYTES = 1 << 20  # most blocks come out in one step
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + Struct(">ii").pack(1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_BLOCK_LENGTH = Struct(">i")


def compress(codec: Codec, data: bytes, level: int | None = None) -> bytes:
    """Return the block of records, compressed with this codec; for `Codec.NONE` the data itself.

    `level` is the level of the codec's library, None its default; snappy has no levels and ignores it. Raises
    RequestTimedOutError if the library cannot be imported now.
    """
    match codec:
        case Codec.GZIP:
            return zlib.compress(data, zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=_GZIP_FORMAT)
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            lz4 = lz4_library()
            return bytes(lz4.compress(data, level or 0, block_size=lz4.BLOCKSIZE_MAX64KB, block_linked=False))
        case Codec.ZSTD:
            compressed: bytes = _library(_ZSTD).compress(data, level)
            return compressed
        case _:
            return data


def decompress(codec: int, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return the decompressed block of records: the data that `compress` was given.

    Raises MessageTooLargeError if the data has more than `limit` bytes, CorruptMessageError if the input is not exactly
    one block of this codec, UnsupportedCompressionTypeError for a codec that is not defined, and RequestTimedOutError
    if the codec's library cannot be imported now.
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
                lz4 = lz4_library()
                _judge(lz4.get_frame_info(data)["content_size"], limit)
                return _decompress_frame(lz4.LZ4FrameDecompressor(), data, limit)
            case Codec.ZSTD:
                zstd = _library(_ZSTD)
                _judge(zstd.get_frame_info(data).decompressed_size or 0, limit)
                return _decompress_frame(zstd.ZstdDecompressor(), data, limit)
    except _errors_of(codec) as error:
        raise CorruptMessageError(f"a block of records that is not {Codec(codec).name.lower()}: {error}") from None
    raise UnsupportedCompressionTypeError(f"codec {codec}, which nothing defines")


def _errors_of(codec: int) -> type[Exception]:
    """Return the class of the errors that the library of this codec raises for damaged input."""
    match codec:
        case Codec.GZIP:
            return zlib.error
        case Codec.SNAPPY:
            snappy_error: type[Exception] = _library(_SNAPPY).DecompressionError
            return snappy_error
        case Codec.ZSTD:
            zstd_error: type[Exception] = _library(_ZSTD).ZstdError
            return zstd_error
        case _:
            return RuntimeError  # lz4 has no class of its own


def lz4_library() -> ModuleType:
    """Return the module of lz4 frames. Raises RequestTimedOutError if it cannot be imported now."""
    return _library(_LZ4)


def _library(name: str) -> ModuleType:
    try:
        return import_module(name)
    except (ImportError, OSError) as error:
        raise RequestTimedOutError(f"cannot load the module {name}: {error}; retry later") from error


class _Decompressor(Protocol):
    """The common interface of the decompressors of a frame.

    `decompress` returns at most `max_length` bytes, and keeps the rest of the input; `decompress(b"")` continues with
    it. `eof` is True once the frame has ended, and `unused_data` has the input after it.
    """

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: Buffer, max_length: int) -> bytes: ...


class _Gunzip:
    """Adapts zlib to `_Decompressor`, because zlib returns the unconsumed input instead of keeping it."""

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
    snappy = _library(_SNAPPY).snappy
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    snappy = _library(_SNAPPY).snappy
    view = memoryview(data)
    framed = view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC
    # The blocks are iterated twice and never collected, because there may be very many tiny blocks.
    _judge(sum(map(snappy.decompress_raw_len, _snappy_blocks(view) if framed else [view])), limit)
    whole = io.BytesIO()
    for block in _snappy_blocks(view) if framed else [view]:
        whole.write(snappy.decompress_raw(block))
    return whole.getvalue()


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    at = len(_XERIAL_HEADER)
    while at != len(view):
        start = at + _BLOCK_LENGTH.size
        at = start + int.from_bytes(view[at:start], "big", signed=True)
        if not start < at <= len(view):
            raise CorruptMessageError(f"a snappy block of {at - start} bytes at {start} of {len(view)}")
        yield view[start:at]

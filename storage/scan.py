"""Walking through the batches of a `.log` without reading what need not be read."""

from __future__ import annotations

from collections.abc import Iterator

from storage.files import File
from tidelog.errors import CorruptMessageError, UnsupportedForMessageFormatError
from tidelog.records import HEADER_BYTES, BatchHeader, read_header, validate_batch

_FIRST_HEADERS = 512
_HEADERS_AT_ONCE = 8 * 1024
_BATCHES_AT_ONCE = 1024 * 1024


def scan_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `position`, where one must begin, to `end`.

    Reads small batches together and of large ones nothing but the header. CorruptMessageError where no whole batch
    follows.
    """
    chunk, chunk_start, ahead = b"", position, _FIRST_HEADERS
    while position < end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = file.read(position, min(ahead, end - position)), position, 0
        header = _header(file, position, chunk, at)
        size = header.size_bytes
        following, ahead = position + size, _HEADERS_AT_ONCE if size < _HEADERS_AT_ONCE else HEADER_BYTES
        if following > end:
            raise CorruptMessageError(f"{file.path}: the batch at {position} is cut off")
        yield position, header
        position = following


def header_at(file: File, position: int, end: int) -> BatchHeader:
    """The header of the one batch that begins at `position`. CorruptMessageError where no whole batch follows."""
    header = _header(file, position, file.read(position, min(HEADER_BYTES, max(end - position, 0))), 0)
    if position + header.size_bytes > end:
        raise CorruptMessageError(f"{file.path}: the batch at {position} is cut off")
    return header


def scan_batches(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """As `scan_headers`, with the bytes of each batch, which are not checked."""
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = file.read(position, min(_BATCHES_AT_ONCE, end - position)), position, 0
        header = _header(file, position, chunk, at)
        size = header.size_bytes
        if position + size <= end and at + size > len(chunk):
            chunk, chunk_start, at = file.read(position, min(max(size, _BATCHES_AT_ONCE), end - position)), position, 0
        if at + size > len(chunk):
            raise CorruptMessageError(f"{file.path}: the batch at {position} is cut off")
        yield position, header, memoryview(chunk)[at : at + size]
        position += size


def scan_valid(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """As `scan_headers`, each batch checked whole with its CRC, and the iteration ends before the first bad one."""
    try:
        for at, header, batch in scan_batches(file, position, end):
            validate_batch(batch, 0, header)
            yield at, header
    except CorruptMessageError:
        return


def _header(file: File, position: int, chunk: bytes, at: int) -> BatchHeader:
    try:
        return read_header(chunk, at)
    except (CorruptMessageError, UnsupportedForMessageFormatError) as error:
        raise CorruptMessageError(f"{file.path}: no batch at {position}: {error}") from None

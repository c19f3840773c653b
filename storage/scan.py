"""Walking through the batches of a `.log` without reading what need not be read."""

from __future__ import annotations

from collections.abc import Iterator

from storage.files import File
from tidelog.errors import CorruptMessageError, UnsupportedForMessageFormatError
from tidelog.records import HEADER_BYTES, BatchHeader, read_header, validate_batch

_HEADERS_AT_ONCE = 8 * 1024
_CHECKED_AT_ONCE = 1024 * 1024


def scan_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `position`, where one must begin, to `end`.

    Reads a few kilobytes at a time and jumps over large batches. CorruptMessageError where no whole batch follows.
    """
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = file.read(position, min(_HEADERS_AT_ONCE, end - position)), position, 0
        try:
            header = read_header(chunk, at)
        except (CorruptMessageError, UnsupportedForMessageFormatError) as error:
            raise CorruptMessageError(f"{file.path}: no batch at {position}: {error}") from None
        following = position + header.size_bytes
        if following > end:
            raise CorruptMessageError(f"{file.path}: the batch at {position} is cut off")
        yield position, header
        position = following


def scan_valid(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """As `scan_headers`, each batch checked whole with its CRC, and the iteration ends before the first bad one."""
    chunk, chunk_start = b"", position
    try:
        while position < end:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_start, at = file.read(position, _CHECKED_AT_ONCE), position, 0
            header = read_header(chunk, at)
            size = header.size_bytes
            if position + size > end:
                return
            if at + size > len(chunk):
                chunk, chunk_start, at = file.read(position, max(size, _CHECKED_AT_ONCE)), position, 0
            validate_batch(chunk, at, header)
            yield position, header
            position += size
    except (CorruptMessageError, UnsupportedForMessageFormatError):
        return

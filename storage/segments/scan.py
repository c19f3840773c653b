"""Walking through the batches of a `.log` without reading what need not be read."""

from __future__ import annotations

import contextlib
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


def scan_batches(
    file: File, position: int, end: int, at_once: int = _BATCHES_AT_ONCE
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """As `scan_headers`, with the bytes of each batch, which are not checked. Reads `at_once` bytes or one batch."""
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = file.read(position, min(at_once, end - position)), position, 0
        header = _header(file, position, chunk, at)
        size = header.size_bytes
        if position + size <= end and at + size > len(chunk):
            chunk, chunk_start, at = file.read(position, min(max(size, at_once), end - position)), position, 0
        if at + size > len(chunk):
            raise CorruptMessageError(f"{file.path}: the batch at {position} is cut off")
        yield position, header, memoryview(chunk)[at : at + size]
        position += size
        at_once = max(at_once, min(size, _BATCHES_AT_ONCE))  # batches are often of one size: the next in one read


def scan_checked(
    file: File,
    position: int,
    end: int,
    expected_offset: int,
    *,
    limit: int | None = None,
    holes: bool = True,
    epoch_before: int = -1,
    at_once: int = _BATCHES_AT_ONCE,
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """As `scan_batches`, and each batch is right. CorruptMessageError in place of the first that is not.

    That is more than its CRC, which covers neither offset nor epoch. A batch must not begin before the end of the one
    before it, nor with an earlier epoch. Where one jumps ahead of `expected_offset` or begins an epoch, it is the next
    that tells whether it or its neighbour is wrong, unless `epoch_before`, that of the batch before all of them, bears
    it out; after the last one comes `limit`, where the next segment begins.
    `holes`: where nothing follows, a jump is taken for what compaction left.
    """
    epoch = -1
    held: tuple[int, BatchHeader, memoryview] | None = None
    jumped = False
    damage: CorruptMessageError | None = None
    batches = scan_batches(file, position, end, at_once)
    while True:
        try:
            at, header, batch = next(batches)
            validate_batch(batch, 0, header)
        except StopIteration:
            break
        except CorruptMessageError as error:
            damage = error
            break
        if header.base_offset < expected_offset or -1 != header.partition_leader_epoch < epoch:
            wrong = held[0] if held is not None else at
            raise CorruptMessageError(f"{file.path}: the batch at {wrong} has an offset or epoch out of order")
        if held is not None:
            yield held
            held = None
        jumped = header.base_offset > expected_offset
        if jumped or (header.partition_leader_epoch > epoch and header.partition_leader_epoch != epoch_before):
            held = at, header, batch
        else:
            yield at, header, batch
        expected_offset, epoch = header.next_offset, max(header.partition_leader_epoch, epoch)
    if damage is None and limit is not None and expected_offset > limit:
        raise CorruptMessageError(f"{file.path}: ends at {expected_offset}, where the next segment begins at {limit}")
    if held is not None:
        if jumped and not holes and (damage is not None or limit is None):
            raise CorruptMessageError(f"{file.path}: the batch at {held[0]} begins at {held[1].base_offset}")
        yield held
    if damage is not None:
        raise damage


def scan_valid(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """As `scan_headers`, of batches that are right (`scan_checked`); the iteration ends before the first bad one."""
    with contextlib.suppress(CorruptMessageError):
        for at, header, _ in scan_checked(file, position, end, 0):
            yield at, header


def _header(file: File, position: int, chunk: bytes, at: int) -> BatchHeader:
    try:
        return read_header(chunk, at)
    except (CorruptMessageError, UnsupportedForMessageFormatError) as error:
        raise CorruptMessageError(f"{file.path}: no batch at {position}: {error}") from None

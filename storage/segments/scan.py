"""Iterates over the batches of a `.log` and reads no more bytes than needed."""

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
    """Yield (position, header) of each batch from `position`, where a batch must begin, up to `end`.

    Small batches are read together; of large ones only the header is read. No CRC is checked. CorruptMessageError if a
    header is invalid or its batch ends after `end`.
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
            raise CorruptMessageError(f"{file.path}: the batch at position {position} is incomplete")
        yield position, header
        position = following


def header_at(file: File, position: int, end: int) -> BatchHeader:
    """Return the header of the batch that begins at `position`. CorruptMessageError if no whole batch follows."""
    header = _header(file, position, file.read(position, min(HEADER_BYTES, max(end - position, 0))), 0)
    if position + header.size_bytes > end:
        raise CorruptMessageError(f"{file.path}: the batch at position {position} is incomplete")
    return header


def scan_batches(
    file: File, position: int, end: int, at_once: int = _BATCHES_AT_ONCE
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield as `scan_headers`, with the unchecked bytes of each batch. One read takes `at_once` bytes, or one batch."""
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
            raise CorruptMessageError(f"{file.path}: the batch at position {position} is incomplete")
        yield position, header, memoryview(chunk)[at : at + size]
        position += size
        at_once = max(at_once, min(size, _BATCHES_AT_ONCE))  # batches often have one size, so read the next at once


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
    """Yield as `scan_batches`, but only valid batches. CorruptMessageError in place of the first invalid one.

    The CRC covers neither the offset nor the leader epoch, so more is checked. A batch must not begin before the end of
    the previous one, nor have an earlier epoch. If a batch skips offsets or begins an epoch, the next batch shows
    whether this batch or its neighbour is wrong. The check needs no next batch if the epoch is `epoch_before`, that of
    the batch before the first one. After the last batch comes `limit`, the base offset of the next segment.

    `holes`: if no valid batch and no `limit` follows, a gap before the last batch is accepted as an effect of
    compaction.
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
            raise CorruptMessageError(f"{file.path}: the batch at position {wrong} has an offset or epoch out of order")
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
        raise CorruptMessageError(
            f"{file.path}: ends at offset {expected_offset}, but the next segment begins at {limit}"
        )
    if held is not None:
        if jumped and not holes and (damage is not None or limit is None):
            raise CorruptMessageError(
                f"{file.path}: offsets are missing before the batch at position {held[0]}, which begins at"
                f" {held[1].base_offset}"
            )
        yield held
    if damage is not None:
        raise damage


def scan_valid(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield as `scan_headers`, but only valid batches (`scan_checked`); end before the first invalid one."""
    with contextlib.suppress(CorruptMessageError):
        for at, header, _ in scan_checked(file, position, end, 0):
            yield at, header


def _header(file: File, position: int, chunk: bytes, at: int) -> BatchHeader:
    try:
        return read_header(chunk, at)
    except (CorruptMessageError, UnsupportedForMessageFormatError) as error:
        raise CorruptMessageError(f"{file.path}: no batch begins at position {position}: {error}") from None

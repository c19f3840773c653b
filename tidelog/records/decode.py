"""Decode a RecordBatch v2 to records, as consumers do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidelog.errors import CorruptMessageError, MessageTooLargeError
from tidelog.model import Buffer
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from tidelog.records.encode import Header
from tidelog.records.header import (
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    check_counts,
    read_header,
    validate_batch,
)
from tidelog.records.varint import INT64_MAX, read_folded, read_folded_64, unfold

#: Default maximum number of headers of one batch, because two bytes of records may be a header that takes eighty bytes
#: of memory. Readers that accept larger batches accept more headers.
MAX_HEADERS = 1 << 20


class Record(NamedTuple):
    """One record with its offset in the log; the timestamp (ms) is the broker's if the batch says LogAppendTime.

    A key or a value of None is a null, unlike an empty one.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class RecordColumns(NamedTuple):
    """The records of one batch in offset order, a list for each field of `Record`; all lists have the same length."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[Header, ...]]


_record_of: Callable[[tuple[object, ...]], Record] = partial(tuple.__new__, Record)


def decode_records(batch: Buffer, position: int = 0, *, limit: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """Return the records of the one batch at `position`, after checking its CRC.

    Raises CorruptMessageError for any malformed byte, UnsupportedForMessageFormatError for an older format, and
    UnsupportedCompressionTypeError for an unknown codec. Raises MessageTooLargeError if the records have more than
    `limit` decompressed bytes, or more headers than `most_headers`.
    """
    return list(map(_record_of, zip(*decode_columns(batch, position, limit=limit), strict=True)))


def decode_columns(
    batch: Buffer, position: int = 0, *, limit: int = MAX_DECOMPRESSED_BYTES, checks_crc: bool = True
) -> RecordColumns:
    """Return the records of the one batch at `position`, with a list for each field.

    Checks and errors are those of `decode_records`, except that the CRC is checked only with `checks_crc`.
    """
    header = read_header(batch, position)
    data = records_block(batch, position, header, limit, checks_crc=checks_crc)
    count = header.record_count
    if count > len(data):
        raise CorruptMessageError(f"{count} records in {len(data)} bytes")
    stamps: list[int] = []
    deltas: list[int] = []
    keys: list[bytes | None] = [None] * count
    values: list[bytes | None] = []
    headers: list[tuple[Header, ...]] = [()] * count
    end, headers_left = 0, most_headers(limit)
    try:
        # A consumer runs this loop for each record, so short numbers are read without a call: those of one byte and of
        # two, and timestamps of three (up to 17 minutes after the first one). A number of more than two bytes shows by
        # the top bit of its second byte, which makes the sum at least 0x4000.
        for row in range(count):
            length = data[end]
            if length < 0x80:
                at = end + 1
            else:
                length, at = length & 0x7F | data[end + 1] << 7, end + 2
                if length > 0x3FFF:
                    length, at = read_folded(data, end)
            end = at + (length >> 1)
            stamp = data[at + 1]
            if stamp < 0x80:
                at += 2
            else:
                stamp, at = stamp & 0x7F | data[at + 2] << 7, at + 3
                if stamp > 0x3FFF:
                    stamp, at = stamp & 0x3FFF | data[at] << 14, at + 1
                    if stamp > 0x1FFFFF:
                        stamp, at = read_folded_64(data, at - 3)
            stamps.append(stamp)
            delta = data[at]
            if delta < 0x80:
                at += 1
            else:
                delta, at = delta & 0x7F | data[at + 1] << 7, at + 2
                if delta > 0x3FFF:
                    delta, at = read_folded(data, at - 2)
            deltas.append(delta)
            if data[at] == 1:
                at += 1  # the key is null
            else:
                keys[row], at = _read_bytes(data, at)
            size, start = data[at], at + 1
            if size > 0x7F:
                size, start = size & 0x7F | data[at + 1] << 7, at + 2
                if size > 0x3FFF:
                    size, start = read_folded(data, at)
            if size & 1:
                value, at = _read_bytes(data, at)
                values.append(value)
            else:
                at = start + (size >> 1)
                values.append(data[start:at])
            if data[at]:
                headers[row], at = read_headers(data, at, headers_left)
                headers_left -= len(headers[row])
            else:
                at += 1
            # An odd length is negative. A record that extends beyond the block is detected by the next read, or by the
            # check of the end.
            if at != end or length & 1:
                raise CorruptMessageError(f"a record of {unfold(length)} bytes that ends elsewhere")
    except IndexError:
        raise CorruptMessageError("the last record ends too early") from None
    if end != len(data):
        raise CorruptMessageError(f"{len(data) - end} bytes after the last record")
    return RecordColumns(offsets_of(header, deltas), timestamps_of(header, stamps), keys, values, headers)


def decode_pairs(
    batch: Buffer, position: int, header: BatchHeader, *, limit: int = MAX_DECOMPRESSED_BYTES
) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return (offset, key, value) of each record of the batch at `position`, whose header is `header`.

    Checks and errors are those of `decode_records`, except that timestamps are skipped without a check.
    """
    data = records_block(batch, position, header, limit)
    pairs: list[tuple[int, bytes | None, bytes | None]] = []
    base_offset, previous, end, headers_left = header.base_offset, -1, 0, most_headers(limit)
    try:
        for _ in range(header.record_count):
            length, at = data[end], end + 1
            if length > 0x7F:
                length, at = read_folded(data, end)
            end = at + (length >> 1)
            at += 1
            while data[at] > 0x7F:
                at += 1
            delta, at = data[at + 1], at + 2
            if delta > 0x7F:
                delta, at = read_folded(data, at - 1)
            key, at = _read_bytes(data, at)
            value, at = _read_bytes(data, at)
            if data[at]:
                several, at = read_headers(data, at, headers_left)
                headers_left -= len(several)
            else:
                at += 1
            if at != end or length & 1:
                raise CorruptMessageError(f"a record of {unfold(length)} bytes that ends elsewhere")
            if not previous < (delta := unfold(delta)) <= header.last_offset_delta:
                raise CorruptMessageError(f"offset delta {delta} after {previous}")
            previous = delta
            pairs.append((base_offset + delta, key, value))
    except IndexError:
        raise CorruptMessageError("the last record ends too early") from None
    if end != len(data):
        raise CorruptMessageError(f"{len(data) - end} bytes after the last record")
    return pairs


def records_block(
    batch: Buffer,
    position: int,
    header: BatchHeader,
    limit: int = MAX_DECOMPRESSED_BYTES,
    *,
    checks_crc: bool = True,
) -> bytes:
    """Return the decompressed, still encoded records of the batch at `position`, after `validate_batch`.

    checks_crc   False: the batch is whole, and its CRC was checked before, or is not to be checked

    Raises the errors of `decode_records` for the batch, its CRC and its size; the records themselves are not checked.
    """
    if checks_crc:
        validate_batch(batch, position, header)
    else:
        check_counts(header)
    return block_of(batch, position, header, limit)


def block_of(batch: Buffer, position: int, header: BatchHeader, limit: int) -> bytes:
    block = memoryview(batch)[position + HEADER_BYTES : position + header.size_bytes]
    if not header.record_count and not block:
        return b""  # compaction leaves no block in a batch without records, whatever its codec was
    return decompress(header.codec, block, limit)


def offsets_of(header: BatchHeader, folded: list[int]) -> list[int]:
    base = header.base_offset
    count = len(folded)
    if folded == list(range(0, 2 * count, 2)):
        return list(range(base, base + count))
    # Compaction leaves gaps, which may be anywhere.
    previous = -1
    for number in folded:
        if not previous < (delta := unfold(number)) <= header.last_offset_delta:
            raise CorruptMessageError(
                f"offset delta {delta} after {previous}, the last one being {header.last_offset_delta}"
            )
        previous = delta
    return [base + (number >> 1) for number in folded]


def timestamps_of(header: BatchHeader, folded: list[int]) -> list[int]:
    """Return the timestamps (ms) of records with these folded deltas; CorruptMessageError if one exceeds 64 bits.

    In a LogAppendTime batch every record has the header's `max_timestamp`.
    """
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return [header.max_timestamp] * len(folded)
    base = header.base_timestamp
    timestamps = [base + (number >> 1 ^ -(number & 1)) for number in folded]
    if timestamps and not (min(timestamps) >= -INT64_MAX and max(timestamps) <= INT64_MAX):
        raise CorruptMessageError(f"timestamp deltas that leave 64 bits from {base}")
    return timestamps


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length = data[position]
    if length == 1:
        return None, position + 1
    if length < 0x80:
        start = position + 1
    else:
        length, start = read_folded(data, position)
        if length == 1:
            return None, start
    if length & 1:
        raise CorruptMessageError(f"a field of {unfold(length)} bytes")
    end = start + (length >> 1)
    return data[start:end], end


def most_headers(limit: int) -> int:
    """Return how many headers a batch may have in all, if its records may have `limit` decompressed bytes."""
    return max(MAX_HEADERS, limit // 128)


def read_headers(data: bytes, position: int, most: int) -> tuple[tuple[Header, ...], int]:
    """Return a record's headers, whose encoded count is at `position`, and the position after them.

    `most` is the number of headers that the batch may still have; MessageTooLargeError for more. Raises
    CorruptMessageError for malformed headers, and IndexError if the data ends within the headers.
    """
    count, position = read_folded(data, position)
    if count & 1 or count > len(data) - position:  # a header has at least two bytes
        raise CorruptMessageError(f"{unfold(count)} headers in {len(data) - position} bytes")
    if count >> 1 > most:
        raise MessageTooLargeError(f"a batch whose records have {(count >> 1) - most} headers more than a reader takes")
    headers: list[Header] = []
    for _ in range(count >> 1):
        name, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
        if name is None:
            raise CorruptMessageError("a header without a name")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError:
            raise CorruptMessageError(f"the header name {name!r} is not UTF-8") from None
    return tuple(headers), position

"""A RecordBatch v2 in, records out: what consumers do, and look-ups by time in one batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidelog.errors import CorruptMessageError, UnsupportedForMessageFormatError
from tidelog.model import Buffer
from tidelog.records.encode import Header
from tidelog.records.header import HEADER_BYTES, BatchHeader, Codec, TimestampType, read_header, validate_batch
from tidelog.records.varint import read_folded, unfold


class Record(NamedTuple):
    """One record; the timestamp in ms is the broker's where the batch says LogAppendTime."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class RecordColumns(NamedTuple):
    """The records of one batch by column, all of one length."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[Header, ...]]


_record_of: Callable[[tuple[object, ...]], Record] = partial(tuple.__new__, Record)


def decode_records(batch: Buffer, position: int = 0) -> list[Record]:
    """The records of the one batch at `position`, its CRC checked first.

    CorruptMessageError on any malformed byte, UnsupportedForMessageFormatError for a codec that cannot be undone.
    """
    return list(map(_record_of, zip(*decode_columns(batch, position), strict=True)))


def decode_columns(batch: Buffer, position: int = 0) -> RecordColumns:
    """As `decode_records`, a list for each field."""
    header = read_header(batch, position)
    data = _records_block(batch, position, header)
    columns = RecordColumns([], [], [], [], [])
    try:
        end = 0
        for _ in range(header.record_count):
            folded, at = read_folded(data, end)
            end = at + unfold(folded)
            folded, at = read_folded(data, at + 1, 10)
            columns.timestamps.append(header.base_timestamp + unfold(folded))
            folded, at = read_folded(data, at)
            columns.offsets.append(header.base_offset + unfold(folded))
            key, at = _read_bytes(data, at)
            columns.keys.append(key)
            value, at = _read_bytes(data, at)
            columns.values.append(value)
            headers, at = _read_headers(data, at)
            columns.headers.append(headers)
            if at != end or end > len(data):
                raise CorruptMessageError(f"a record of the batch at offset {header.base_offset} has a wrong length")
        if end != len(data):
            raise CorruptMessageError(f"{len(data) - end} bytes after the last record")
    except IndexError:
        raise CorruptMessageError(f"the batch at offset {header.base_offset} ends inside a record") from None
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        columns.timestamps[:] = [header.max_timestamp] * header.record_count
    return columns


def first_record_at_or_after(batch: Buffer, timestamp: int, min_offset: int = 0) -> Record | None:
    """The first record with a timestamp ≥ `timestamp` and an offset ≥ `min_offset`, or None.

    Errors as `decode_records`.
    """
    for record in decode_records(batch):
        if record.timestamp >= timestamp and record.offset >= min_offset:
            return record
    return None


def _records_block(batch: Buffer, position: int, header: BatchHeader) -> bytes:
    validate_batch(batch, position, header)
    if header.codec != Codec.NONE:
        name = Codec(header.codec).name.lower() if header.codec <= Codec.ZSTD else f"number {header.codec}"
        raise UnsupportedForMessageFormatError(f"codec {name} of the batch at offset {header.base_offset}")
    return bytes(memoryview(batch)[position + HEADER_BYTES : position + header.size_bytes])


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    folded, position = read_folded(data, position)
    if folded & 1:
        if folded != 1:
            raise CorruptMessageError(f"a field of length {unfold(folded)}")
        return None, position
    end = position + (folded >> 1)
    return data[position:end], end


def _read_headers(data: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    folded, position = read_folded(data, position)
    if folded & 1 or folded >> 1 > len(data):
        raise CorruptMessageError(f"{unfold(folded)} headers")
    headers: list[Header] = []
    for _ in range(folded >> 1):
        name, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
        if name is None:
            raise CorruptMessageError("a header without a name")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError:
            raise CorruptMessageError("a header's name is not UTF-8") from None
    return tuple(headers), position

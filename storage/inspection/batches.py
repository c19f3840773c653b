"""Inspects the batches of a `.log`: each is compared with its CRC and with the batch before it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from storage.inspection.damaged_file_reader import DamagedFileReader
from storage.inspection.findings import Damage, Fact, Finding, Value
from storage.segments.offset_index import MAX_RELATIVE_OFFSET
from tidelog.errors import CorruptMessageError, TidelogError, UnsupportedForMessageFormatError
from tidelog.model import NO_TIMESTAMP
from tidelog.records import (
    HEADER_BYTES,
    BatchHeader,
    Codec,
    TimestampType,
    decode_control_batch,
    decode_records,
    read_header,
    validate_batch,
)

#: A larger batch is read as a whole only after its CRC was verified, because a damaged length may span the file.
_READ_AT_ONCE = 4 << 20
_CRC_START = 21
_CODECS = {codec: codec.name.lower() for codec in Codec}


class Batch(NamedTuple):
    """A batch header and its position in the file."""

    position: int
    header: BatchHeader


def walk(source: DamagedFileReader) -> Iterator[Batch | Damage]:
    """Yield the batches as their headers describe them; a Damage after which no batch can be found is the last item.

    No CRC is checked.
    """
    position = 0
    while position < source.size:
        present = source.size - position
        try:
            header = read_header(source.read(position, HEADER_BYTES))
        except (CorruptMessageError, UnsupportedForMessageFormatError) as error:
            yield Damage(position, _why_no_batch(source, position, error))
            return
        if header.size_bytes > present:
            yield Damage(position, f"truncated: the batch has {header.size_bytes} bytes, but only {present} are left")
            return
        yield Batch(position, header)
        position += header.size_bytes


def inspect_batches(source: DamagedFileReader, base_offset: int | None, *, records: bool) -> Iterator[Finding]:
    """Yield each batch of a `.log`, and after a damaged one its Damage.

    `base_offset` is that in the file name, or None.

    With `records`, the records of an undamaged batch follow it.
    """
    next_offset = base_offset or 0
    for batch in walk(source):
        if isinstance(batch, Damage):
            yield batch
            return
        position, header = batch
        yield Fact("batch", _fields(position, header))
        reason = _fault(source, batch)
        if reason is None and header.base_offset < next_offset:
            reason = f"offset {header.base_offset} is lower than {next_offset}, the lowest possible here"
        if reason is None and base_offset is not None and header.last_offset - base_offset > MAX_RELATIVE_OFFSET:
            reason = f"offset {header.last_offset} is too far from the base offset {base_offset} of the segment"
        if reason is not None:
            yield Damage(position, reason)
            continue
        next_offset = header.next_offset
        if records:
            try:
                yield from _records(source.read(position, header.size_bytes), header)
            except TidelogError as error:
                yield Damage(position, f"the records cannot be decoded: {error}")


def _fields(position: int, header: BatchHeader) -> dict[str, Value]:
    idempotent = header.producer_id >= 0
    return {
        "position": position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "leader_epoch": header.partition_leader_epoch,
        "codec": _CODECS.get(Codec(header.codec)) if header.codec in _CODECS else str(header.codec),
        "timestamp_type": "LogAppendTime" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime",
        "base_timestamp": _time(header.base_timestamp),
        "max_timestamp": _time(header.max_timestamp),
        "producer_id": header.producer_id if idempotent else None,
        "producer_epoch": header.producer_epoch if idempotent else None,
        "base_sequence": header.base_sequence if header.base_sequence >= 0 else None,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon_timestamp": header.delete_horizon_ms,
    }


def _time(timestamp_ms: int) -> int | None:
    return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms


def _records(batch: memoryview, header: BatchHeader) -> Iterator[Fact]:
    if header.is_control and (marker := decode_control_batch(batch)) is not None:
        fields: dict[str, Value] = {"offset": marker.offset, "timestamp": _time(marker.timestamp)}
        yield Fact("marker", {**fields, "ends": marker.kind.name, "coordinator_epoch": marker.coordinator_epoch})
        return
    for offset, timestamp, key, value, headers in decode_records(batch):
        yield Fact(
            "record",
            {"offset": offset, "timestamp": _time(timestamp), "key": key, "value": value, "headers": list(headers)},
        )


def _fault(source: DamagedFileReader, batch: Batch) -> str | None:
    position, header = batch
    end = position + header.size_bytes
    if header.size_bytes > _READ_AT_ONCE:
        actual = 0
        for piece in source.pieces(position + _CRC_START, end):
            actual = crc32c(piece, actual)
        if actual != header.crc:
            return f"CRC {actual:#010x} of the batch at offset {header.base_offset} instead of {header.crc:#010x}"
    try:
        validate_batch(source.read(position, header.size_bytes), 0, header)
    except CorruptMessageError as error:
        return str(error)
    return None


def _why_no_batch(source: DamagedFileReader, position: int, error: Exception) -> str:
    if source.zeros_from(position):
        return f"{source.size - position} bytes of zeros to the end of the file"
    if source.size - position < HEADER_BYTES:
        return f"truncated: {source.size - position} bytes are fewer than a batch header has"
    # Remove the position in the error, because it refers to the buffer and not to the file.
    return f"no batch begins here: {re.sub(r' at 0(?=[ ;]|$)', '', str(error))}"

"""Fuzzes the record decoders, and compares all of them; also the conversion of old record formats.

A client can put any bytes into a batch with a valid CRC, and brokers do not decode records. Therefore most inputs are
tried below the CRC: the input is the content of a batch whose header matches.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from tidelog.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from tidelog.records import (
    HEADER_BYTES,
    Codec,
    Record,
    compress,
    decode_columns,
    decode_control_batch,
    decode_pairs,
    decode_records,
    decompress,
    encode_batch,
    excerpt_batch,
    first_record_at_or_after,
    iter_headers,
    outline_batch,
    read_header,
    to_record_batch,
    validate_batch,
)
from tidelog.records.columns import decode_buffers
from tidelog.records.header import HEADER, seal
from tools.fuzz.targets.target import Target, check

T = TypeVar("T")

#: The limit of one decompressed batch. Small results make memory growth visible.
LIMIT = 1 << 20
_REFUSED = (
    CorruptMessageError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
#: The byte of a message set at which the CRC of its first message begins to cover bytes.
_MESSAGE_AT = 16
#: Bytes before the records: their number, the distance of the last offset, attributes and times.
_PREFIX = 8


def run_batch(data: bytes) -> None:
    """Try any bytes as batches, as they are and with magic, length and CRC corrected; only known errors may be raised.

    Check also that all decoders agree on the corrected batch.
    """
    for batch in (data, _sealed_again(data)):
        for position, header in _tried(lambda batch=batch: list(iter_headers(batch))) or ():  # type: ignore[misc]
            _tried(lambda batch=batch, p=position, h=header: validate_batch(batch, p, h))  # type: ignore[misc]
            _tried(lambda batch=batch, p=position: decode_records(batch, p, limit=LIMIT))  # type: ignore[misc]
        _tried(lambda batch=batch: decode_buffers(batch))  # type: ignore[misc]
    _agree(_sealed_again(data))


def run_records(data: bytes) -> None:
    """Check that all decoders agree on a batch whose uncompressed records are any bytes."""
    _agree(_batch_of(data[:_PREFIX], data[_PREFIX:], Codec.NONE))


def run_block(data: bytes) -> None:
    """Check that any bytes, as compressed data, are decompressed within the limit, or refused.

    Check also that decompressed data survives compression, and that all decoders agree on a batch with this block.
    """
    codec = Codec(1 + data[0] % 4) if data else Codec.GZIP
    block = _tried(lambda: decompress(codec, data[1:], LIMIT))
    if block is not None:
        check(len(block) <= LIMIT, f"{codec.name} made {len(block)} bytes")
        check(
            decompress(codec, compress(codec, block), LIMIT) == block, f"{codec.name} does not give back what it took"
        )
    _agree(_batch_of(b"\1\0", data[1:], codec))


def run_message_set(data: bytes) -> None:
    """Try any bytes as a message set, as they are, with the CRC of the first message corrected, and compressed.

    Check that a converted batch can be decoded.
    """
    corrected = bytearray(data)
    if len(data) >= _MESSAGE_AT:
        end = _MESSAGE_AT + int.from_bytes(data[8:12])
        corrected[12:16] = zlib.crc32(corrected[_MESSAGE_AT:end]).to_bytes(4)
    attributes = data[_MESSAGE_AT + 1] & 7 if len(data) > _MESSAGE_AT + 1 else 0
    inner = compress(Codec(attributes % 4), bytes(corrected))
    for message_set in (data, bytes(corrected), _message_of(inner, attributes)):
        try:
            batch = to_record_batch(message_set, LIMIT)
        except (*_REFUSED, InvalidRecordError, InvalidTimestampError):
            continue
        check(
            len(decode_records(batch, limit=2 * LIMIT)) == read_header(batch).record_count,
            "the batch has other records",
        )
        validate_batch(batch, 0, read_header(batch))


def _message_of(value: bytes, attributes: int) -> bytes:
    """Return a message of format 1 with this value and these attributes."""
    body = bytes([1, attributes]) + bytes(8) + b"\xff" * 4 + len(value).to_bytes(4) + value
    return bytes(8) + (4 + len(body)).to_bytes(4) + zlib.crc32(body).to_bytes(4) + body


def _message_sets() -> list[bytes]:
    one = _message_of(b"value", 0)
    return [one, one * 3, *(_message_of(compress(codec, one * 3), codec) for codec in Codec if codec != Codec.NONE)]


def _agree(batch: bytes) -> None:
    """Check that every decoder returns the records of `decode_records`; if that refuses, others raise known errors."""
    records = _tried(lambda: decode_records(batch, limit=LIMIT))
    buffers = _tried(lambda: decode_buffers(batch[: _first_length(batch)])) if records is not None else None
    if records is None:
        _tried(lambda: decode_buffers(batch))
        _tried(lambda: first_record_at_or_after(batch, 0, limit=LIMIT))
        return
    header = read_header(batch)
    columns = decode_columns(batch, limit=LIMIT)
    check(list(map(Record, *columns)) == records, "columns are not the records")
    pairs = decode_pairs(batch, 0, header, limit=LIMIT)
    check(pairs == [(each.offset, each.key, each.value) for each in records], "pairs are not the records")
    check(buffers is not None, "buffers refuse what records are made of")
    assert buffers is not None
    check(buffers.offsets.tolist() == columns.offsets, "buffers have other offsets")
    check(buffers.timestamps.tolist() == columns.timestamps, "buffers have other times")
    check([buffers.key(row) for row in range(len(records))] == columns.keys, "buffers have other keys")
    check([buffers.value(row) for row in range(len(records))] == columns.values, "buffers have other values")
    check(
        [buffers.headers.get(row, ()) for row in range(len(records))] == columns.headers, "buffers have other headers"
    )
    _agree_on_times(batch, records)
    if header.is_control:
        _tried(lambda: decode_control_batch(batch))
    if records:
        slots = range(0, len(records), 2)
        excerpt = excerpt_batch(outline_batch(batch, header, limit=LIMIT), slots)
        check(decode_records(excerpt, limit=LIMIT) == records[::2], "an excerpt holds other records")


def _agree_on_times(batch: bytes, records: Sequence[Record]) -> None:
    """Check that the search by time gives the result of a linear scan, at some times and offsets.

    No record is expected beyond the header's max timestamp or last offset.
    """
    header = read_header(batch)
    times = {each.timestamp for each in records[:: max(1, len(records) // 4)]}
    for target in {*times, *(time + 1 for time in times), header.max_timestamp}:
        for least in {0, records[len(records) // 2].offset if records else 0}:
            if target > header.max_timestamp or least > header.last_offset:
                expected = None
            else:
                found = (each for each in records if each.timestamp >= target and each.offset >= least)
                expected = next(((each.offset, each.timestamp) for each in found), None)
            answer = first_record_at_or_after(batch, target, least, limit=LIMIT)
            check(answer == expected, f"{answer} is the first at {target} from {least} on, and not {expected}")


def _tried(read: Callable[[], T]) -> T | None:
    """Return the result, or None if the reader refused the bytes with an expected error."""
    try:
        return read()
    except _REFUSED:
        return None


def _first_length(batch: bytes) -> int:
    header = _tried(lambda: read_header(batch))
    return header.size_bytes if header else len(batch)


def _sealed_again(data: bytes) -> bytes:
    """Return the bytes as a batch with the correct magic, length and CRC; unchanged if shorter than a header."""
    if len(data) < HEADER_BYTES:
        return data
    batch = bytearray(data)
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    batch[16] = 2
    seal(batch, 0, len(batch))
    return bytes(batch)


def _batch_of(prefix: bytes, block: bytes, codec: Codec) -> bytes:
    """Return a sealed batch around a block. The prefix determines the variable fields of its header."""
    count, apart, kinds, *times = prefix.ljust(_PREFIX, b"\0")[:_PREFIX]
    base, largest = int.from_bytes(bytes(times[:2])) - 1, int.from_bytes(bytes(times[2:5]))
    attributes = codec | (8 if kinds & 1 else 0) | (32 if kinds & 2 else 0)
    batch = bytearray(HEADER_BYTES) + block
    last = max(count - 1, 0) + apart
    HEADER.pack_into(
        batch, 0, 1000, len(batch) - 12, 3, 2, 0, attributes, last, base, base + largest, -1, -1, -1, count
    )
    seal(batch, 0, len(batch))
    return bytes(batch)


def _batches() -> list[bytes]:
    records = [
        (1000, b"key", b"value", [("h", b"1"), ("n", None)]),
        (1001, None, b"v" * 100, ()),
        (999, b"k", None, ()),
    ]
    even = [(1000 + number, None, b"%08d" % number, ()) for number in range(60)]
    return [encode_batch(each, base_offset=1000, codec=codec) for each in (records, even) for codec in Codec]


def _blocks() -> list[bytes]:
    prefix = bytes([3, 0, 0, 3, 233, 0, 0, 3])
    sixty = bytes([60, 5, 0, 3, 233, 0, 0, 60])
    plain = [batch for batch in _batches() if read_header(batch).codec == Codec.NONE]
    return [head + batch[HEADER_BYTES:] for head, batch in zip((prefix, sixty), plain, strict=True)]


def _compressed() -> list[bytes]:
    blocks = [block[_PREFIX:] for block in _blocks()] + [b"\0" * 5000, b""]
    codecs = [codec for codec in Codec if codec is not Codec.NONE]
    return [bytes([codec - 1]) + compress(codec, block) for codec in codecs for block in blocks]


_PACKAGES = ("tidelog.records",)

TARGETS = (
    Target("batch", "batches as a client may send or a disk may damage them", run_batch, _batches, _PACKAGES),
    Target("records", "the records within a sealed batch", run_records, _blocks, _PACKAGES),
    Target(
        "block",
        "compressed blocks of records",
        run_block,
        _compressed,
        _PACKAGES,
        (b"\x82SNAPPY\0", b"\x28\xb5\x2f\xfd"),
    ),
    Target("message-set", "message sets of clients before Kafka 0.11", run_message_set, _message_sets, _PACKAGES),
)

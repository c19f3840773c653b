"""Test that bytes which are not a valid batch cause a typed error, whatever is wrong with them.

A producer can send nonsense with a right CRC, and brokers do not decode records, so the records themselves are damaged
under a right CRC, too.
"""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import (
    CorruptMessageError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from tidelog.records import (
    HEADER_BYTES,
    decode_pairs,
    decode_records,
    encode_batch,
    first_record_at_or_after,
    iter_headers,
    read_header,
    validate_batch,
)
from tidelog.records.columns import ColumnCollector, RecordBuffers, decode_buffers
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES
from tidelog.records.decode import MAX_HEADERS
from tidelog.records.header import HEADER, seal
from tidelog.records.varint import encode_varint

GOOD = encode_batch(
    [(1000, b"key", b"value", [("h", b"1"), ("n", None)]), (1001, None, b"v" * 100, ()), (1002, b"k", None, ())]
)


def patched(**fields: int) -> bytes:
    """Return GOOD with other header fields; the CRC is right unless it is one of them."""
    batch = bytearray(GOOD)
    HEADER.pack_into(batch, 0, *read_header(GOOD)._replace(**fields))
    if "crc" not in fields:
        seal(batch, 0, len(batch))
    return bytes(batch)


def sealed(records: bytes, count: int = 1) -> bytes:
    """Return a batch with these bytes as its records, otherwise consistent."""
    batch = bytearray(HEADER_BYTES) + records
    HEADER.pack_into(batch, 0, 0, len(batch) - 12, -1, 2, 0, 0, max(count - 1, 0), 1000, 1000, -1, -1, -1, count)
    seal(batch, 0, len(batch))
    return bytes(batch)


def test_the_batch_that_the_damage_starts_from_is_good() -> None:
    assert len(decode_records(GOOD)) == 3
    assert patched() == GOOD
    assert decode_records(sealed(b"\x0e\x00\x00\x00\x01\x02v\x00"))[0].value == b"v"


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_every_truncation_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptMessageError):
        decode_records(GOOD[:length])
    assert list(iter_headers(GOOD[:length])) == []


def test_any_bit_flipped_from_the_crc_on_is_detected() -> None:
    header = read_header(GOOD)
    for bit in range(17 * 8, len(GOOD) * 8):
        damaged = bytearray(GOOD)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptMessageError):
            decode_records(damaged)
        if bit >= 21 * 8:
            with pytest.raises(CorruptMessageError):
                validate_batch(damaged, 0, header)


@pytest.mark.parametrize("magic", [-1, 0, 1, 3, 127])
def test_another_magic_is_named(magic: int) -> None:
    with pytest.raises(UnsupportedForMessageFormatError, match=f"format {magic} "):
        read_header(patched(magic=magic))


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_length": -(2**31)},
        {"batch_length": -1},
        {"batch_length": 0},
        {"batch_length": HEADER_BYTES - 13},
        {"base_offset": -1},
        {"base_offset": 2**63 - 3},
        {"last_offset_delta": -1},
    ],
    ids=str,
)
def test_a_header_that_no_batch_can_have_is_corrupt(fields: dict[str, int]) -> None:
    with pytest.raises(CorruptMessageError):
        read_header(patched(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"crc": 0},
        {"batch_length": len(GOOD) - 12 + 1},
        {"batch_length": 2**31 - 1},
        {"last_offset_delta": 1},
        {"last_offset_delta": 0},
        {"record_count": -1},
        {"record_count": 4},
        {"record_count": 100, "last_offset_delta": 99},
        {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 1},
    ],
    ids=str,
)
def test_a_header_that_contradicts_its_batch_is_corrupt(fields: dict[str, int]) -> None:
    batch = patched(**fields)
    with pytest.raises(CorruptMessageError):
        validate_batch(batch, 0, read_header(batch))


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 2},
        {"record_count": 4, "last_offset_delta": 3},
        {"record_count": 0},
        {"base_timestamp": 2**63 - 1},
        {"base_timestamp": -(2**63)},
    ],
    ids=str,
)
def test_a_header_that_contradicts_its_records_is_corrupt(fields: dict[str, int]) -> None:
    with pytest.raises(CorruptMessageError):
        decode_records(patched(**fields))


def test_a_zeroed_tail_is_corrupt_rather_than_an_old_format() -> None:
    with pytest.raises(CorruptMessageError):
        read_header(bytes(200))


@pytest.mark.parametrize("position", [-1, len(GOOD), len(GOOD) + 1])
def test_a_position_outside_the_buffer_is_corrupt(position: int) -> None:
    with pytest.raises(CorruptMessageError):
        read_header(GOOD, position)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_undefined_codec_passes_validation_and_is_named_on_decoding(codec: int) -> None:
    batch = patched(attributes=codec, record_count=1000, last_offset_delta=999)
    validate_batch(batch, 0, read_header(batch))
    for decode in (decode_records, lambda batch: first_record_at_or_after(batch, 0, 0)):
        with pytest.raises(UnsupportedCompressionTypeError, match=f"codec {codec}"):
            decode(batch)


OVERLONG_32 = b"\x80\x80\x80\x80\x80\x00"
TOO_WIDE_32 = b"\xff\xff\xff\xff\x1f"
OVERLONG_64 = b"\x80" * 10 + b"\x00"
TOO_WIDE_64 = b"\xff" * 9 + b"\x03"
HUGE = b"\xfe\xff\xff\xff\x0f"  # 2³¹−1


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(b"", id="nothing at all"),
        pytest.param(b"\x10\x00\x00\x00\x01\x02v\x00", id="length one too large"),
        pytest.param(b"\x10\x00\x00\x00\x01\x02v\x00\x00", id="a byte left over inside the record"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x02v\x00", id="length one too small"),
        pytest.param(b"\x0d\x00\x00\x00\x01\x02v\x00", id="negative length"),
        pytest.param(b"\x0f\x00\x00\x00\x01\x02v\x00", id="negative length of the right size"),
        pytest.param(HUGE + b"\x00\x00\x00\x01\x02v\x00", id="absurd length"),
        pytest.param(OVERLONG_32 + b"\x00\x00\x00\x01\x02v\x00", id="length never ends"),
        pytest.param(b"\x80\x80\x80\x80\x80\x80\x80\x80", id="length has no end"),
        pytest.param(TOO_WIDE_32 + b"\x00\x00\x00\x01\x02v\x00", id="length of 33 bits"),
        pytest.param(b"\x22\x00" + OVERLONG_64 + b"\x00\x01\x02v\x00", id="timestamp delta never ends"),
        pytest.param(b"\x20\x00" + TOO_WIDE_64 + b"\x00\x01\x02v\x00", id="timestamp delta of 65 bits"),
        pytest.param(b"\x18\x00\x00" + OVERLONG_32 + b"\x01\x02v\x00", id="offset delta never ends"),
        pytest.param(b"\x16\x00\x00" + TOO_WIDE_32 + b"\x01\x02v\x00", id="offset delta of 33 bits"),
        pytest.param(b"\x0e\x00\x00\x02\x01\x02v\x00", id="offset delta beyond the last"),
        pytest.param(b"\x0e\x00\x00\x01\x01\x02v\x00", id="negative offset delta"),
        pytest.param(b"\x0e\x00\x00\x00\x03\x02v\x00", id="key length −2"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x03v\x00", id="value length −2"),
        pytest.param(b"\x16\x00\x00\x00" + HUGE + b"\x02v\x00", id="absurd key length"),
        pytest.param(b"\x16\x00\x00\x00\x01" + HUGE + b"v\x00", id="absurd value length"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x04v\x00", id="value swallows the header count"),
        pytest.param(b"\x1c\x00\x00\x00\x01\x02v\x02\x02h\x08ab", id="header value and record past the end"),
    ],
)
def test_a_malformed_record_under_a_right_crc_is_corrupt(record: bytes) -> None:
    batch = sealed(record)
    with pytest.raises(CorruptMessageError):
        decode_records(batch)
    with pytest.raises(CorruptMessageError):
        first_record_at_or_after(batch, 0, -10)
    with pytest.raises(CorruptMessageError):
        decode_buffers(batch)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(b"\x0e\x00\x00\x00\x01\x02v\x01", id="header count −1"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x02v\x02", id="one header missing"),
        pytest.param(b"\x16\x00\x00\x00\x01\x02v" + HUGE, id="absurd header count"),
        pytest.param(b"\x12\x00\x00\x00\x01\x02v\x02\x01\x01", id="header without a name"),
        pytest.param(b"\x14\x00\x00\x00\x01\x02v\x02\x02\xff\x01", id="header name not UTF-8"),
        pytest.param(b"\x14\x00\x00\x00\x01\x02v\x02\x02h\x05", id="header value length −3"),
        pytest.param(b"\x14\x00\x00\x00\x01\x02v\x02\x02h\x02", id="header value missing"),
    ],
)
def test_malformed_headers_are_corrupt_for_readers_and_unseen_by_look_ups(record: bytes) -> None:
    batch = sealed(record)
    with pytest.raises(CorruptMessageError):
        decode_records(batch)
    with pytest.raises(CorruptMessageError):
        decode_buffers(batch)
    assert first_record_at_or_after(batch, 0) == (0, 1000)


def test_bytes_after_the_last_record_are_corrupt() -> None:
    with pytest.raises(CorruptMessageError, match="1 bytes after"):
        decode_records(sealed(b"\x0e\x00\x00\x00\x01\x02v\x00\x00"))


def test_offsets_must_grow() -> None:
    zero, one = b"\x0e\x00\x00\x00\x01\x02v\x00", b"\x0e\x00\x00\x02\x01\x02v\x00"
    assert [record.offset for record in decode_records(sealed(zero + one, 2))] == [0, 1]
    for records in (zero + zero, one + zero, one + one):
        with pytest.raises(CorruptMessageError):
            decode_records(sealed(records, 2))


def test_an_overlong_but_bounded_varint_is_read() -> None:
    # Padding a varint is wasteful but valid, and other producers may do it.
    padded = b"\x94\x80\x00\x00\x80\x00\x00\x01\x02v\x00"
    with pytest.raises(CorruptMessageError):
        decode_records(sealed(padded))
    assert decode_records(sealed(b"\x90\x80\x00" + padded[3:]))[0].value == b"v"


@given(st.binary(max_size=60), st.integers(0, 8), st.integers(-2, 2000))
def test_arbitrary_records_give_records_or_a_typed_error(records: bytes, count: int, timestamp: int) -> None:
    batch = sealed(records, count)
    try:
        decoded = decode_records(batch)
    except CorruptMessageError:
        decoded = None
    try:
        found = first_record_at_or_after(batch, timestamp, 0)
    except CorruptMessageError:
        assert decoded is None
    else:
        if decoded is not None and timestamp <= 1000:
            assert found == next((record[:2] for record in decoded if record.timestamp >= timestamp), None)


@given(st.data())
def test_damage_inside_the_records_gives_records_or_a_typed_error(data: st.DataObject) -> None:
    batch = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    seal(batch, 0, len(batch))
    with contextlib.suppress(CorruptMessageError):
        assert len(decode_records(batch)) == 3


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_batch(data: bytes) -> None:
    for read in (decode_records, lambda buffer: list(iter_headers(buffer))):
        with contextlib.suppress(CorruptMessageError, UnsupportedForMessageFormatError):
            assert read(data) == []


# ---- headers, which need many times their bytes of memory

Reader = Callable[[bytes, int], object]


def read_pairs(batch: bytes, limit: int) -> object:
    return decode_pairs(batch, 0, read_header(batch), limit=limit)


def read_columns(batch: bytes, limit: int) -> RecordBuffers:
    collector = ColumnCollector(limit)
    for position, header in iter_headers(batch):
        collector.add(batch, position, header)
    return collector.take()


READERS: list[Reader] = [lambda batch, limit: decode_records(batch, limit=limit), read_pairs, read_columns]


def with_headers(*counts: int) -> bytes:
    """Return a batch of records with so many headers of two bytes each."""
    records = b""
    for slot, count in enumerate(counts):
        body = b"\0\0" + encode_varint(slot) + b"\x01\x01" + encode_varint(count) + b"\x00\x01" * count
        records += encode_varint(len(body)) + body
    return sealed(records, len(counts))


@pytest.mark.parametrize("read", READERS)
def test_too_many_headers_are_rejected_before_they_are_decoded(read: Reader) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLargeError, match="1 headers more than a reader takes"):
            read(with_headers(MAX_HEADERS + 1), MAX_DECOMPRESSED_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("read", READERS)
def test_header_limit_is_per_batch_and_grows_with_the_readers_limit(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.records.decode.MAX_HEADERS", 5)
    read(with_headers(2, 0, 3), 100)
    read(with_headers(2, 0, 4), 6 * 128)
    with pytest.raises(MessageTooLargeError):
        read(with_headers(2, 0, 4), 6 * 128 - 1)


def test_header_limit_applies_to_each_batch_of_a_set_of_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.records.decode.MAX_HEADERS", 5)
    read = read_columns(with_headers(5) + with_headers(0, 2, 3) + with_headers(0, 5), 100)
    assert {row: len(headers) for row, headers in read.headers.items()} == {0: 5, 2: 2, 3: 3, 5: 5}


@pytest.mark.parametrize("read", READERS)
def test_a_count_of_headers_that_the_batch_cannot_hold_is_corrupt(read: Reader) -> None:
    batch = bytearray(with_headers(2))
    batch[HEADER_BYTES + 6] = 0xFE
    batch[HEADER_BYTES + 7] = 0x01
    seal(batch, 0, len(batch))
    with pytest.raises(CorruptMessageError):
        read(bytes(batch), MAX_DECOMPRESSED_BYTES)

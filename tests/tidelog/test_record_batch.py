"""Test RecordBatch v2 as bytes: written by hand, built, decoded, patched."""

from __future__ import annotations

import random
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.tidelog.written import Written, as_read, timestamps, written_records
from tidelog.errors import CorruptMessageError
from tidelog.records import (
    HEADER_BYTES,
    BatchBuilder,
    BatchHeader,
    Codec,
    Record,
    TimestampType,
    assign_offsets,
    decode_columns,
    decode_records,
    encode_batch,
    first_record_at_or_after,
    iter_headers,
    read_header,
    single_record_bytes,
    stamp_log_append_time,
    validate_batch,
)
from tidelog.records.encode import MAX_TIMESTAMP

# Two records spelled field by field. The first has a key, a value and two headers; the second, 150 ms later,
# neither key nor value.
FIRST_RECORD = (
    b"\x2c"  # length 22
    b"\x00"  # attributes
    b"\x00"  # timestamp delta 0
    b"\x00"  # offset delta 0
    b"\x06key"  # key of 3 bytes
    b"\x0avalue"  # value of 5 bytes
    b"\x04"  # 2 headers
    b"\x02h\x04\x00\xff"  # "h": 2 bytes
    b"\x02n\x01"  # "n": null
)
SECOND_RECORD = (
    b"\x0e"  # length 7
    b"\x00"  # attributes
    b"\xac\x02"  # timestamp delta 150: folded 300 = 0b10_0101100
    b"\x02"  # offset delta 1
    b"\x01"  # null key
    b"\x01"  # null value
    b"\x00"  # no headers
)
UNDER_CRC = (
    b"\x00\x00"  # attributes: no codec, CreateTime
    b"\x00\x00\x00\x01"  # last offset delta 1
    b"\x00\x00\x01\x8b\xcf\xe5\x68\x00"  # base timestamp 1700000000000
    b"\x00\x00\x01\x8b\xcf\xe5\x68\x96"  # max timestamp 150 ms later
    b"\x00\x00\x00\x00\x00\x00\x03\xe9"  # producer id 1001
    b"\x00\x02"  # producer epoch 2
    b"\x00\x00\x00\x05"  # base sequence 5
    b"\x00\x00\x00\x02" + FIRST_RECORD + SECOND_RECORD  # 2 records
)
GOLDEN = (
    b"\x00\x00\x00\x00\x00\x00\x00\x2a"  # base offset 42
    b"\x00\x00\x00\x50"  # batch length 80: 9 up to the CRC, 40 of header after it, 31 of records
    b"\x00\x00\x00\x07"  # partition leader epoch 7
    b"\x02"  # magic
    b"\x4e\xf1\x9e\x5a" + UNDER_CRC  # CRC-32C of the rest
)
GOLDEN_RECORDS = [
    Record(42, 1_700_000_000_000, b"key", b"value", (("h", b"\x00\xff"), ("n", None))),
    Record(43, 1_700_000_000_150, None, None, ()),
]


def bitwise_crc32c(data: bytes) -> int:
    """Compute CRC-32C (Castagnoli) bit by bit."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF


def test_the_crc_of_the_golden_batch_is_castagnolis() -> None:
    assert bitwise_crc32c(b"123456789") == 0xE306_9283
    assert bitwise_crc32c(UNDER_CRC) == int.from_bytes(GOLDEN[17:21], "big")


def test_builder_writes_the_golden_batch() -> None:
    batch = encode_batch(
        [
            (1_700_000_000_000, b"key", b"value", [("h", b"\x00\xff"), ("n", None)]),
            (1_700_000_000_150, None, None, ()),
        ],
        producer_id=1001,
        producer_epoch=2,
        base_sequence=5,
        base_offset=42,
        leader_epoch=7,
    )
    assert batch == GOLDEN


def test_the_golden_batch_is_read_field_by_field() -> None:
    header = read_header(GOLDEN)
    validate_batch(GOLDEN, 0, header)
    assert header == BatchHeader(
        base_offset=42,
        batch_length=len(GOLDEN) - 12,
        partition_leader_epoch=7,
        magic=2,
        crc=0x4EF1_9E5A,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_150,
        producer_id=1001,
        producer_epoch=2,
        base_sequence=5,
        record_count=2,
    )
    assert header.size_bytes == len(GOLDEN) == HEADER_BYTES + 31
    assert (header.last_offset, header.next_offset, header.last_sequence) == (43, 44, 6)
    assert header.codec == Codec.NONE and header.timestamp_type is TimestampType.CREATE_TIME
    assert not header.is_transactional and not header.is_control
    assert decode_records(GOLDEN) == GOLDEN_RECORDS


def test_attribute_bits_are_distinguished() -> None:
    header = read_header(GOLDEN)
    assert [header._replace(attributes=bits).codec for bits in (0, 1, 2, 3, 4)] == list(Codec)
    assert header._replace(attributes=0x08).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header._replace(attributes=0x10).is_transactional and not header._replace(attributes=0x10).is_control
    assert header._replace(attributes=0x20).is_control and header._replace(attributes=0x20).codec == 0


def test_the_last_sequence_wraps_to_zero_and_is_absent_without_a_producer() -> None:
    header = read_header(GOLDEN)
    assert header._replace(base_sequence=2**31 - 1).last_sequence == 0
    assert header._replace(base_sequence=-1).last_sequence == -1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("position", [0, 1, 100])
def test_a_batch_is_read_wherever_it_lies(kind: type, position: int) -> None:
    buffer = kind(b"x" * position + GOLDEN + b"y" * 5)
    header = read_header(buffer, position)
    validate_batch(buffer, position, header)
    assert decode_records(buffer, position) == GOLDEN_RECORDS


def test_decoded_fields_are_bytes_that_outlive_the_buffer() -> None:
    buffer = bytearray(GOLDEN)
    records = decode_records(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert records == GOLDEN_RECORDS
    assert type(records[0].value) is bytes and type(records[0].key) is bytes


def test_columns_hold_the_same_records() -> None:
    assert [Record(*row) for row in zip(*decode_columns(GOLDEN), strict=True)] == GOLDEN_RECORDS


def test_offsets_and_epoch_are_assigned_without_touching_the_crc() -> None:
    buffer = bytearray(b"??" + GOLDEN)
    assign_offsets(memoryview(buffer), 2, 2**40, 9)
    header = read_header(buffer, 2)
    validate_batch(buffer, 2, header)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 9)
    assert [record.offset for record in decode_records(buffer, 2)] == [2**40, 2**40 + 1]
    assert buffer[2 + 16 :] == GOLDEN[16:] and buffer[:2] == b"??"


def test_log_append_time_gives_each_record_the_brokers_time() -> None:
    buffer = bytearray(b"??" + GOLDEN + b"!!")
    stamp_log_append_time(buffer, 2, 1_800_000_000_000)
    header = read_header(buffer, 2)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME and header.max_timestamp == 1_800_000_000_000
    assert {record.timestamp for record in decode_records(buffer, 2)} == {1_800_000_000_000}
    assert buffer[-2:] == b"!!"
    batch = bytes(buffer[2:-2])
    assert first_record_at_or_after(batch, 1_800_000_000_000, 43) == (43, 1_800_000_000_000)
    assert first_record_at_or_after(batch, 1_800_000_000_001, 0) is None


def test_iteration_yields_each_header_and_ends_at_an_incomplete_batch() -> None:
    second = encode_batch([(5, None, b"z", ())], base_offset=44)
    whole = GOLDEN + second
    positions = [(position, header.base_offset) for position, header in iter_headers(whole)]
    assert positions == [(0, 42), (len(GOLDEN), 44)]
    for cut in range(1, len(second) + 1):
        assert [position for position, _ in iter_headers(whole[:-cut])] == [0]
    assert list(iter_headers(b"")) == []
    with pytest.raises(CorruptMessageError):
        list(iter_headers(GOLDEN + bytes(HEADER_BYTES)))


def compacted(deltas: list[int], last_offset_delta: int) -> bytes:
    """Return a batch from whose offsets compaction has removed all but `deltas`, with values that name them."""
    whole = encode_batch([(delta, None, str(delta).encode(), ()) for delta in range(last_offset_delta + 1)])
    kept = b""
    position = HEADER_BYTES
    for delta in range(last_offset_delta + 1):
        size = 1 + (whole[position] >> 1)
        kept += whole[position : position + size] if delta in deltas else b""
        position += size
    batch = bytearray(whole[:HEADER_BYTES] + kept)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, len(deltas))
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


@pytest.mark.parametrize("deltas", [[], [0], [4], [1, 3], [0, 1, 2, 3, 4]])
def test_a_compacted_batch_keeps_its_offsets(deltas: list[int]) -> None:
    batch = bytearray(compacted(deltas, 4))
    assign_offsets(batch, 0, 100, 0)
    assert [(record.offset, record.value) for record in decode_records(batch)] == [
        (100 + delta, str(delta).encode()) for delta in deltas
    ]
    assert read_header(batch).next_offset == 105


# ---- round trips against the plainest models


@given(written_records, st.integers(0, 2**62))
def test_encoded_records_are_decoded(records: list[Written], base_offset: int) -> None:
    batch = encode_batch(records, base_offset=base_offset)
    assert decode_records(batch) == as_read(records, base_offset)
    header = read_header(batch)
    assert header.max_timestamp == max(timestamp for timestamp, *_ in records)
    assert header.base_timestamp == records[0][0]


@pytest.mark.parametrize("bits", range(62))
def test_timestamps_are_decoded_at_each_length_of_their_encoding(bits: int) -> None:
    first, distance = 2**62, 2**bits
    stamps = [first, first + distance, first - distance, first + distance - 1, first - distance - 1]
    batch = encode_batch([(stamp, None, b"v", ()) for stamp in stamps])
    assert [record.timestamp for record in decode_records(batch)] == stamps


@given(written_records, st.integers(HEADER_BYTES, 3000))
def test_the_builder_counts_every_byte_and_never_exceeds_its_limit(records: list[Written], max_bytes: int) -> None:
    builder = BatchBuilder(max_bytes)
    accepted: list[Written] = []
    for record in records:
        before = builder.build()
        relative_offset = builder.try_append(*record)
        if relative_offset is None:
            assert builder.build() == before
            if not accepted:
                assert single_record_bytes(*record[1:]) > max_bytes
            else:
                assert len(encode_batch([*accepted, record])) > max_bytes
        else:
            assert relative_offset == len(accepted)
            accepted.append(record)
        assert builder.size_bytes == len(builder.build()) <= max_bytes
        assert builder.record_count == len(accepted)
    if accepted:
        assert builder.build() == encode_batch(accepted)


@given(written_records, timestamps, st.integers(90, 190))
def test_look_up_equals_a_linear_scan(records: list[Written], timestamp: int, min_offset: int) -> None:
    batch = encode_batch(records, base_offset=100)
    matching = (r[:2] for r in decode_records(batch) if r.timestamp >= timestamp and r.offset >= min_offset)
    assert first_record_at_or_after(batch, timestamp, min_offset) == next(matching, None)


#: Consecutive records of one size: count, size of each value, first timestamp, and the step to the next one.
runs = st.lists(
    st.tuples(
        st.integers(1, 90),
        st.sampled_from([0, 1, 2, 56, 57, 58, 59, 130, 194]),
        st.sampled_from([0, 1, 60, 63, 64, 8100, 8191, 8192, 1 << 20, 1 << 30, -70, -9000]),
        st.sampled_from([0, 1, 1, 2, 7, 130, -1, -64]),
    ),
    min_size=1,
    max_size=6,
)


@given(runs, st.integers(99, 400), st.randoms(use_true_random=False))
def test_look_up_equals_a_linear_scan_among_records_of_one_size(
    runs: list[tuple[int, int, int, int]], min_offset: int, rng: random.Random
) -> None:
    first_ms = 1_700_000_000_000
    records: list[Written] = [(first_ms, None, b"", ())]
    for count, size, start, step in runs:
        records += [(first_ms + start + step * number, None, bytes(size), ()) for number in range(count)]
    for at in rng.sample(range(len(records)), k=min(3, len(records))):  # some stand out of line
        timestamp, _, value, _ = records[at]
        records[at] = (timestamp + rng.choice((-9000, -1, 1, 90, 9000)), None, value + bytes(rng.choice((0, 1))), ())
    decoded = decode_records(batch := encode_batch(records, base_offset=100))
    for record in decoded[:: 1 + len(decoded) // 60]:
        target = record.timestamp + rng.choice((-1, 0, 1))
        least = rng.choice((0, min_offset))
        matching = (each[:2] for each in decoded if each.timestamp >= target and each.offset >= least)
        assert first_record_at_or_after(batch, target, least) == next(matching, None)


# ---- the builder's rules


def test_the_first_and_the_last_time_share_a_batch() -> None:
    for times in ([-1, MAX_TIMESTAMP], [MAX_TIMESTAMP, -1]):
        batch = encode_batch([(time, None, None, ()) for time in times])
        assert [record.timestamp for record in decode_records(batch)] == times


def test_record_too_large_for_an_empty_builder_is_rejected_with_its_size() -> None:
    needed = single_record_bytes(b"key", b"v" * 100, [("h", None)])
    assert BatchBuilder(needed - 1).try_append(7, b"key", b"v" * 100, [("h", None)]) is None
    assert BatchBuilder(needed).try_append(7, b"key", b"v" * 100, [("h", None)]) == 0


def test_a_batch_may_be_built_again_with_another_sequence() -> None:
    builder = BatchBuilder(1000)
    builder.try_append(1, None, b"v")
    first, second = builder.build(producer_id=1, base_sequence=0), builder.build(producer_id=1, base_sequence=8)
    assert (read_header(first).base_sequence, read_header(second).base_sequence) == (0, 8)
    assert decode_records(first) == decode_records(second)


def test_a_buffer_that_changes_after_the_append_does_not_change_the_record() -> None:
    value = bytearray(b"before")
    builder = BatchBuilder(1000)
    builder.try_append(1, memoryview(value), value, [("h", value)])  # type: ignore[arg-type, list-item]
    value[:] = b"after!"
    assert decode_records(builder.build()) == [Record(0, 1, b"before", b"before", (("h", b"before"),))]


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ((-2, None, None, ()), ValueError),
        ((2**63, None, None, ()), ValueError),
        ((2**63 - 1, None, None, ()), ValueError),
        ((1.5, None, None, ()), TypeError),
        ((1, "text", None, ()), TypeError),
        ((1, None, 5, ()), TypeError),
        ((1, None, None, [("h", "text")]), TypeError),
        ((1, None, None, [(b"h", b"")]), TypeError),
    ],
)
def test_invalid_record_is_rejected_and_leaves_the_batch_unchanged(
    record: tuple[object, ...], error: type[Exception]
) -> None:
    builder = BatchBuilder(1000)
    builder.try_append(5, b"k", b"v")
    before = builder.build()
    with pytest.raises(error):
        builder.try_append(*record)  # type: ignore[arg-type]
    assert builder.build() == before and builder.size_bytes == len(before)


def test_builder_accepts_every_valid_limit_and_timestamp() -> None:
    for max_bytes in (HEADER_BYTES, 2**31 - 1):
        assert BatchBuilder(max_bytes).size_bytes == HEADER_BYTES
    assert decode_records(encode_batch([(2**63 - 2, None, None, ())]))[0].timestamp == 2**63 - 2


@pytest.mark.parametrize("max_bytes", [0, HEADER_BYTES - 1, 2**31])
def test_impossible_batch_limit_is_rejected(max_bytes: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        BatchBuilder(max_bytes)


@pytest.mark.parametrize("size", [0, 1, 8_191, 8_192, 20_000])
@pytest.mark.parametrize("key", [None, b"k", bytes(8_192)], ids=["no key", "key", "long key"])
def test_more_records_and_longer_ones_than_most_batches_have(size: int, key: bytes | None) -> None:
    builder = BatchBuilder(1 << 30)
    written = [
        (number * 5 - 7, key if number % 4_000 == 0 else None, bytes(size if number == 3 else 1))
        for number in range(8_200)
    ]
    for number, (timestamp, each_key, value) in enumerate(written):
        assert builder.try_append(1_000 + timestamp, each_key, value) == number
    batch = builder.build()
    assert len(batch) == builder.size_bytes
    columns = decode_columns(batch)
    assert columns.offsets == list(range(8_200))
    assert list(zip(columns.timestamps, columns.keys, columns.values, strict=True)) == [
        (1_000 + timestamp, each_key, value) for timestamp, each_key, value in written
    ]

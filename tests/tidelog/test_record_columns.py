"""Test that columns have the records of the plain decoder, for any bytes."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tidelog.test_record_batch_malformed import GOOD, sealed
from tests.tidelog.written import Written, written_records
from tidelog.errors import CorruptMessageError
from tidelog.records import (
    HEADER_BYTES,
    Codec,
    Record,
    decode_records,
    encode_batch,
    iter_headers,
    read_header,
    stamp_log_append_time,
)
from tidelog.records.columns import ColumnCollector, RecordBuffers, decode_buffers
from tidelog.records.header import seal

T = 1_700_000_000_000


def as_records(columns: RecordBuffers) -> list[Record]:
    return [
        Record(offset, timestamp, columns.key(row), columns.value(row), columns.headers.get(row, ()))
        for row, (offset, timestamp) in enumerate(
            zip(columns.offsets.tolist(), columns.timestamps.tolist(), strict=True)
        )
    ]


def one_by_one(batches: bytes) -> list[Record]:
    return [record for at, _ in iter_headers(batches) for record in decode_records(batches, at)]


@given(
    st.lists(st.tuples(written_records, st.sampled_from(Codec), st.none() | st.integers(0, T)), max_size=4),
    st.integers(0, 2**62),
)
def test_columns_equal_the_decoded_records(
    batches: list[tuple[list[Written], Codec, int | None]], base_offset: int
) -> None:
    log = bytearray()
    types = []
    for records, codec, append_time in batches:
        batch = bytearray(encode_batch(records, base_offset=base_offset, codec=codec))
        if append_time is not None:
            stamp_log_append_time(batch, 0, append_time)
        log += batch
        base_offset += len(records)
        types += [int(append_time is not None)] * len(records)
    columns = decode_buffers(bytes(log))
    assert as_records(columns) == one_by_one(bytes(log))
    assert columns.timestamp_types.tolist() == types


@given(st.lists(st.tuples(st.integers(0, 300) | st.sampled_from([8182, 8183, 8184]), st.integers(1, 100)), max_size=5))
@example([(100, 300)])
@example([(56, 70), (57, 70), (56, 1), (8183, 100)])  # sizes on either side of a longer varint
@example([(0, 9000)])  # offset deltas of one, two and three bytes
def test_runs_of_records_of_one_size_are_read_like_any_others(runs: list[tuple[int, int]]) -> None:
    values = [os.urandom(size) for size, times in runs for _ in range(times)]
    batch = encode_batch([(T + 3 * number, None, value, ()) for number, value in enumerate(values)])
    columns = decode_buffers(batch)
    assert [columns.value(row) for row in range(len(values))] == values
    assert columns.timestamps.tolist() == [T + 3 * number for number in range(len(values))]
    assert columns.offsets.tolist() == list(range(len(values)))


def test_a_record_that_only_looks_like_the_next_of_its_run_ends_the_run() -> None:
    # Lengths of two bytes: the second differs while the first is equal.
    sizes = [200] * 5 + [200 + 64] * 5 + [200] * 5
    values = [bytes(size) for size in sizes]
    columns = decode_buffers(encode_batch([(T, None, value, ()) for value in values]))
    assert columns.values.lengths.tolist() == sizes


def test_batches_collected_one_by_one_make_one_set_of_columns() -> None:
    collector = ColumnCollector()
    for base in (0, 2, 10):
        batch = encode_batch([(T, b"k", b"%d" % base, ()), (T, None, None, ())], base_offset=base)
        collector.add(batch, 0, read_header(batch))
    assert (collector.record_count, collector.size_bytes > 0) == (6, True)
    columns = collector.take()
    assert columns.offsets.tolist() == [0, 1, 2, 3, 10, 11]
    assert [columns.value(row) for row in range(6)] == [b"0", None, b"2", None, b"10", None]
    assert (collector.record_count, collector.size_bytes) == (0, 0)
    assert as_records(collector.take()) == []


KEPT = ([(T, None, b"kept", ())], Codec.NONE, False)
SKIPPED = ([(T, None, b"skipped", ())], Codec.NONE, True)


@given(
    st.lists(
        st.lists(st.tuples(written_records, st.sampled_from([Codec.NONE, Codec.ZSTD]), st.booleans()), max_size=4),
        max_size=3,
    )
)
@example([[KEPT], [SKIPPED, SKIPPED, KEPT]])  # the batches of two buffers, at rising positions
@example([[KEPT, SKIPPED, KEPT]])
def test_batches_of_several_answers_make_one_set_without_skipped_ones(
    answers: list[list[tuple[list[Written], Codec, bool]]],
) -> None:
    collector, expected, base_offset = ColumnCollector(), [], 0
    for batches in answers:
        encoded = []
        for records, codec, _ in batches:
            encoded.append(encode_batch(records, base_offset=base_offset, codec=codec))
            base_offset += len(records)
        answer = b"".join(encoded)
        for (at, header), batch, (_, _, is_skipped) in zip(iter_headers(answer), encoded, batches, strict=True):
            if not is_skipped:
                collector.add(answer, at, header)
                expected += decode_records(batch)
    assert as_records(collector.take()) == expected


def test_batch_that_is_added_twice_is_decoded_twice() -> None:
    batch, collector = encode_batch([(T, b"k", b"v", ())]), ColumnCollector()
    header = read_header(batch)
    collector.add(batch, 0, header)
    collector.add(batch, 0, header)
    assert as_records(collector.take()) == 2 * decode_records(batch)


@pytest.mark.parametrize(
    ("base", "delta"), [(2**63 - 1, b"\x02"), (-(2**63), b"\x00"), (-(2**63), b"\x01"), (-5, b"\xff" * 9 + b"\x01")]
)
def test_timestamps_beyond_64_bits_are_corrupt(base: int, delta: bytes) -> None:
    record = b"\x00" + delta + b"\x00\x01\x02v\x00"
    batch = bytearray(sealed(bytes([2 * len(record)]) + record))
    batch[27:35] = base.to_bytes(8, "big", signed=True)
    seal(batch, 0, len(batch))
    for decode in (decode_records, decode_buffers):
        with pytest.raises(CorruptMessageError, match="64 bits"):
            decode(batch)


def test_each_batchs_offsets_stay_below_its_own_last_one() -> None:
    zero, one, two = (b"\x0e\x00\x00" + delta + b"\x01\x02v\x00" for delta in (b"\x00", b"\x02", b"\x04"))
    good = sealed(zero + one, 2)
    assert decode_buffers(good + good).offsets.tolist() == [0, 1, 0, 1]
    for bad in (sealed(zero + two, 2), sealed(one + zero, 2), sealed(one + one, 2)):
        for batches in (bad, good + bad, bad + good):
            with pytest.raises(CorruptMessageError, match="offset delta"):
                decode_buffers(batches)


def agree(batch: bytes) -> None:
    """Either both decoders return the same records, or both raise CorruptMessageError."""
    try:
        records = decode_records(batch)
    except CorruptMessageError:
        with pytest.raises(CorruptMessageError):
            decode_buffers(batch)
        # A valid batch behind them does not make the bytes valid.
        with pytest.raises(CorruptMessageError):
            decode_buffers(batch + GOOD)
    else:
        assert as_records(decode_buffers(batch)) == records


@given(st.binary(max_size=60), st.integers(0, 8))
@example(b"\x10\x00\x00\x00\x81\x00\x02v\x00", 1)  # a null of two bytes
@example(b"", 0)
def test_arbitrary_records_are_judged_alike(records: bytes, count: int) -> None:
    agree(sealed(records, count))


@given(st.data(), st.sampled_from([GOOD, encode_batch([(T, None, b"v" * 100, ())] * 70)]))
def test_damaged_records_are_judged_alike(data: st.DataObject, good: bytes) -> None:
    batch = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    seal(batch, 0, len(batch))
    agree(bytes(batch))

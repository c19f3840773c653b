"""Compare excerpts of batches with the decoder, and check the bytes that compaction writes."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.tidelog.test_record_batch_malformed import GOOD, patched
from tests.tidelog.written import Written, timestamps, written_records
from tidelog.errors import CorruptMessageError
from tidelog.records import (
    HEADER_BYTES,
    Codec,
    decode_records,
    empty_batch,
    encode_batch,
    excerpt_batch,
    outline_batch,
    read_header,
    stamp_log_append_time,
    validate_batch,
)
from tidelog.records.header import LOG_APPEND_TIME_BIT, seal

HORIZONS = timestamps.filter(lambda timestamp: timestamp >= 0)


def whole_batch(records: list[Written], codec: Codec, *, log_append_time: int | None = None) -> bytes:
    """A batch in a log, of a producer that counts."""
    batch = bytearray(
        encode_batch(
            records, producer_id=9, producer_epoch=2, base_sequence=40, base_offset=1000, leader_epoch=7, codec=codec
        )
    )
    if log_append_time is not None:
        stamp_log_append_time(batch, 0, log_append_time)
    return bytes(batch)


@given(
    written_records, st.sampled_from(Codec), st.sets(st.integers(0, 79)), st.none() | HORIZONS, st.none() | timestamps
)
def test_excerpt_has_the_kept_records_and_the_whole_batchs_header(
    records: list[Written], codec: Codec, wanted: set[int], horizon: int | None, log_append_time: int | None
) -> None:
    assume(records)
    kept = [slot for slot in range(len(records)) if slot in wanted] or [0]
    batch = whole_batch(records, codec, log_append_time=log_append_time)
    header, before = read_header(batch), decode_records(batch)

    outline = outline_batch(batch, header)
    assert outline.offsets == [record.offset for record in before]
    assert outline.keys == [record.key for record in before]
    assert outline.tombstones == [record.value is None and record.key is not None for record in before]

    excerpt = excerpt_batch(outline, kept, horizon)
    after = read_header(excerpt)
    validate_batch(excerpt, 0, after)
    assert decode_records(excerpt) == [before[slot] for slot in kept]
    expected = header._replace(
        batch_length=after.batch_length,
        crc=after.crc,
        max_timestamp=max(before[slot].timestamp for slot in kept),
        record_count=len(kept),
    )
    if horizon is None:
        assert after == expected
    else:
        assert after == expected._replace(attributes=header.attributes | 0x40, base_timestamp=horizon)
    assert after.delete_horizon_ms == horizon


@given(written_records, st.sampled_from(Codec), HORIZONS)
def test_an_excerpt_of_an_excerpt_keeps_the_first_delete_horizon(
    records: list[Written], codec: Codec, horizon: int
) -> None:
    batch = whole_batch(records, codec)
    every = range(len(records))
    marked = excerpt_batch(outline_batch(batch, read_header(batch)), every, horizon)
    again = excerpt_batch(outline_batch(marked, read_header(marked)), [every[-1]])
    assert read_header(again).delete_horizon_ms == horizon
    assert decode_records(again) == decode_records(batch)[-1:]


def test_delete_horizon_replaces_the_base_timestamp() -> None:
    batch = encode_batch([(1_000, b"k", None, ())], base_offset=5, leader_epoch=3)
    marked = excerpt_batch(outline_batch(batch, read_header(batch)), [0], 1_064)
    assert marked[21:23] == b"\x00\x40", "attributes: bit 6"
    assert marked[27:35] == (1_064).to_bytes(8, "big")
    assert marked[35:43] == (1_000).to_bytes(8, "big"), "the largest timestamp is still that of the record"
    assert marked[HEADER_BYTES:] == b"\x0e\x00\x7f\x00\x02k\x01\x00", "timestamp delta -64"


@pytest.mark.parametrize("codec", Codec)
def test_empty_batch_is_a_header_with_offsets_sequences_and_time(codec: Codec) -> None:
    header = read_header(whole_batch([(10, b"a", b"1", ()), (30, b"b", None, ()), (20, b"c", b"3", ())], codec))
    empty = empty_batch(header)
    after = read_header(empty)
    validate_batch(empty, 0, after)
    assert len(empty) == HEADER_BYTES
    assert decode_records(empty) == []
    assert (after.base_offset, after.last_offset, after.next_offset) == (1000, 1002, 1003)
    assert (after.producer_id, after.producer_epoch, after.base_sequence, after.last_sequence) == (9, 2, 40, 42)
    assert (after.partition_leader_epoch, after.max_timestamp, after.base_timestamp) == (7, 30, -1)
    assert (after.attributes, after.record_count) == (0, 0)
    outline = outline_batch(empty, after)
    assert (outline.offsets, outline.starts) == ([], [0])


def test_empty_batch_keeps_the_timestamp_type_without_codec_and_horizon() -> None:
    batch = whole_batch([(10, b"a", None, ())], Codec.ZSTD, log_append_time=99)
    marked = excerpt_batch(outline_batch(batch, read_header(batch)), [0], 500)
    after = read_header(empty_batch(read_header(marked)))
    assert (after.attributes, after.max_timestamp) == (LOG_APPEND_TIME_BIT, 99)


@given(st.data())
def test_outline_rejects_what_the_decoder_rejects_with_the_same_errors(data: st.DataObject) -> None:
    at = data.draw(st.integers(HEADER_BYTES, len(GOOD) - 1))
    batch = bytearray(GOOD)
    batch[at] ^= data.draw(st.integers(1, 255))
    seal(batch, 0, len(batch))
    try:
        expected = [record.offset for record in decode_records(batch)]
    except CorruptMessageError:
        # Headers are skipped, so errors in the headers alone are not detected.
        try:
            outline = outline_batch(batch, read_header(batch))
        except CorruptMessageError:
            return
        first, last = read_header(GOOD).base_offset, read_header(GOOD).last_offset
        assert outline.offsets == sorted({*outline.offsets} & {*range(first, last + 1)})
    else:
        assert outline_batch(batch, read_header(batch)).offsets == expected


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_wrong_number_of_records_is_corrupt(count: int) -> None:
    batch = patched(record_count=count)
    with pytest.raises(CorruptMessageError):
        outline_batch(batch, read_header(batch))


def test_a_wrong_crc_is_corrupt() -> None:
    batch = patched(crc=1)
    with pytest.raises(CorruptMessageError):
        outline_batch(batch, read_header(batch))


@pytest.mark.parametrize("deltas", [(1, 0), (0, 0), (0, 2), (0, -1), (-1, 0)])
def test_offsets_that_do_not_rise_to_the_last_one_are_corrupt(deltas: tuple[int, int]) -> None:
    batch = bytearray(encode_batch([(5, None, None, ())] * 2))
    for at, delta in zip((HEADER_BYTES, HEADER_BYTES + 7), deltas, strict=True):
        batch[at + 3] = delta << 1 if delta >= 0 else 1
    seal(batch, 0, len(batch))
    for read in (decode_records, lambda data: outline_batch(data, read_header(data))):
        with pytest.raises(CorruptMessageError):
            read(batch)

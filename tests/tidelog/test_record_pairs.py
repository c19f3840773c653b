"""Test that decoded offsets, keys and values are those of the records, for any bytes."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from tests.tidelog.test_record_batch_malformed import GOOD
from tests.tidelog.written import Written, written_records
from tidelog.errors import CorruptMessageError
from tidelog.records import HEADER_BYTES, Codec, decode_pairs, decode_records, encode_batch, read_header
from tidelog.records.header import seal


def pairs_of(batch: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return decode_pairs(batch, 0, read_header(batch))


def read_plainly(batch: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in decode_records(batch)]


@given(written_records, st.sampled_from(Codec), st.integers(0, 2**62))
def test_pairs_equal_those_of_the_decoded_records(records: list[Written], codec: Codec, base_offset: int) -> None:
    batch = encode_batch(records, base_offset=base_offset, codec=codec)
    assert pairs_of(batch) == read_plainly(batch)


@given(st.data())
def test_damaged_batch_gives_the_plain_decoders_result_or_an_error(data: st.DataObject) -> None:
    damaged = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(HEADER_BYTES, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    seal(damaged, 0, len(damaged))
    batch = bytes(damaged)
    with contextlib.suppress(CorruptMessageError):
        expected = read_plainly(batch)
        assert pairs_of(batch) == expected
        return
    # Records with invalid timestamps or headers may be decoded here; all other errors are typed.
    with contextlib.suppress(CorruptMessageError):
        assert len(pairs_of(batch)) == read_header(batch).record_count

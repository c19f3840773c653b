"""Test that values reveal their id and any change."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.chaos.payload import SMALLEST_BYTES, id_of, make_id, payload, producer_of, sequence_of

IDS = st.builds(make_id, st.integers(0, (1 << 23) - 1), st.integers(0, (1 << 40) - 1))
SIZES = st.integers(SMALLEST_BYTES, 300)


@given(IDS, SIZES)
def test_value_contains_its_id_and_has_its_size(record_id: int, size_bytes: int) -> None:
    value = payload(record_id, size_bytes)
    assert len(value) == size_bytes
    assert id_of(value) == id_of(memoryview(value)) == record_id
    assert make_id(producer_of(record_id), sequence_of(record_id)) == record_id


@given(IDS, SIZES, st.data())
def test_value_with_a_changed_bit_has_no_id(record_id: int, size_bytes: int, data: st.DataObject) -> None:
    value = bytearray(payload(record_id, size_bytes))
    bit = data.draw(st.integers(0, size_bytes * 8 - 1))
    value[bit // 8] ^= 1 << bit % 8
    assert id_of(bytes(value)) is None


@given(IDS, SIZES, st.data())
def test_truncated_value_has_no_id(record_id: int, size_bytes: int, data: st.DataObject) -> None:
    assert id_of(payload(record_id, size_bytes)[: data.draw(st.integers(0, size_bytes - 1))]) is None


def test_value_with_the_filler_of_another_id_has_no_id() -> None:
    body = payload(1, 100)[:8] + payload(2, 100)[8:-4]
    assert id_of(body + zlib.crc32(body).to_bytes(4, "big")) is None


def test_foreign_value_has_no_id() -> None:
    assert id_of(None) is None
    assert id_of(b"") is None
    assert id_of(b"0" * 100) is None


@pytest.mark.parametrize(("producer", "sequence"), [(-1, 0), (1 << 23, 0), (0, -1), (0, 1 << 40)])
def test_ids_beyond_their_bits_are_refused(producer: int, sequence: int) -> None:
    with pytest.raises(ValueError, match="no such id"):
        make_id(producer, sequence)


def test_size_too_small_for_the_id_is_refused() -> None:
    with pytest.raises(ValueError, match="need 12 bytes"):
        payload(1, SMALLEST_BYTES - 1)

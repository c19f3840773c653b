"""Test control batches, the markers that end transactions, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptMessageError
from tidelog.records import (
    MarkerKind,
    TransactionMarker,
    decode_control_batch,
    decode_records,
    encode_batch,
    encode_control_batch,
    read_header,
    validate_batch,
)
from tidelog.records.header import HEADER, seal

# An abort of producer 1001 in its epoch 2, written at offset 42 by the coordinator of epoch 9.
GOLDEN_ABORT = (
    b"\x00\x00\x00\x00\x00\x00\x00\x2a"  # base offset 42
    b"\x00\x00\x00\x42"  # batch length 66
    b"\x00\x00\x00\x07"  # partition leader epoch 7
    b"\x02"  # magic
    b"\x22\x6c\x47\x32"  # CRC-32C of the rest
    b"\x00\x30"  # attributes: transactional, control
    b"\x00\x00\x00\x00"  # last offset delta 0
    b"\x00\x00\x01\x8b\xcf\xe5\x68\x00"  # base timestamp 1700000000000
    b"\x00\x00\x01\x8b\xcf\xe5\x68\x00"  # max timestamp
    b"\x00\x00\x00\x00\x00\x00\x03\xe9"  # producer id 1001
    b"\x00\x02"  # producer epoch 2
    b"\xff\xff\xff\xff"  # no sequence
    b"\x00\x00\x00\x01"  # 1 record
    b"\x20\x00\x00\x00"  # length 16, attributes, timestamp delta 0, offset delta 0
    b"\x08\x00\x00\x00\x00"  # key of 4 bytes: version 0, type 0 (abort)
    b"\x0c\x00\x00\x00\x00\x00\x09"  # value of 6 bytes: version 0, coordinator epoch 9
    b"\x00"  # no headers
)


def a_marker(kind: MarkerKind, **fields: int) -> bytes:
    return encode_control_batch(
        kind,
        **{"producer_id": 1001, "producer_epoch": 2, "coordinator_epoch": 9, "timestamp_ms": 1_700_000_000_000}
        | {"base_offset": 42, "leader_epoch": 7}
        | fields,
    )


def control_batch(records: list[tuple[int, bytes | None, bytes | None, Any]], attributes: int = 0x30) -> bytes:
    """Return any records in a control batch."""
    batch = bytearray(encode_batch(records))
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(attributes=attributes))
    seal(batch, 0, len(batch))
    return bytes(batch)


def test_the_golden_abort_is_written_and_read() -> None:
    assert a_marker(MarkerKind.ABORT) == GOLDEN_ABORT
    validate_batch(GOLDEN_ABORT, 0, read_header(GOLDEN_ABORT))
    expected = TransactionMarker(MarkerKind.ABORT, 42, 1_700_000_000_000, 1001, 2, 9)
    assert decode_control_batch(GOLDEN_ABORT) == expected
    assert decode_control_batch(b"??" + GOLDEN_ABORT + b"!!", 2) == expected


def test_a_commit_differs_from_an_abort_in_its_type_alone() -> None:
    commit = a_marker(MarkerKind.COMMIT)
    differing = [at for at, byte in enumerate(commit) if byte != GOLDEN_ABORT[at] and not 17 <= at < 21]
    assert differing == [len(GOLDEN_ABORT) - 9] and commit[differing[0]] == 1
    header = read_header(commit)
    assert header.is_control and header.is_transactional and header.last_sequence == -1
    assert decode_records(commit)[0].key == b"\x00\x00\x00\x01"


@given(
    st.sampled_from(MarkerKind), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(-1, 2**31 - 1),
    st.integers(0, 2**62), st.integers(0, 2**62),
)  # fmt: skip
def test_encoded_control_batch_is_decoded(
    kind: MarkerKind, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int, offset: int
) -> None:
    batch = a_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=timestamp,
        base_offset=offset,
    )
    assert decode_control_batch(batch) == (kind, offset, timestamp, producer_id, producer_epoch, coordinator_epoch)


def test_a_later_version_with_more_fields_is_read_as_far_as_it_is_known() -> None:
    later = control_batch([(5, b"\x00\x01\x00\x01more", b"\x00\x01\x00\x00\x00\x09more", ())])
    marker = decode_control_batch(later)
    assert marker is not None and (marker.kind, marker.coordinator_epoch) == (MarkerKind.COMMIT, 9)


@pytest.mark.parametrize("kind", [-1, 2, 3, 32767])
def test_other_control_records_are_no_markers(kind: int) -> None:
    key = b"\x00\x00" + kind.to_bytes(2, "big", signed=True)
    assert decode_control_batch(control_batch([(5, key, None, ())])) is None


def test_a_control_batch_that_compaction_emptied_is_no_marker() -> None:
    batch = bytearray(GOLDEN_ABORT[:61])
    HEADER.pack_into(batch, 0, *read_header(GOLDEN_ABORT)._replace(batch_length=49, record_count=0))
    seal(batch, 0, len(batch))
    assert decode_control_batch(batch) is None


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([(5, None, b"\x00" * 6, ())], id="no key"),
        pytest.param([(5, b"\x00\x00\x00", b"\x00" * 6, ())], id="half a key"),
        pytest.param([(5, b"\x00\x00\x00\x01", None, ())], id="no value"),
        pytest.param([(5, b"\x00\x00\x00\x01", b"\x00" * 5, ())], id="half a value"),
        pytest.param([(5, b"\x00\x00\x00\x01", b"\x00" * 6, ())] * 2, id="two records"),
    ],
)
def test_marker_of_a_wrong_length_is_corrupt(records: Any) -> None:
    with pytest.raises(CorruptMessageError):
        decode_control_batch(control_batch(records))


def test_a_damaged_marker_is_corrupt() -> None:
    with pytest.raises(CorruptMessageError):
        decode_control_batch(GOLDEN_ABORT[:-1])
    with pytest.raises(CorruptMessageError):
        decode_control_batch(GOLDEN_ABORT[:-1] + b"\x01")


def test_a_users_batch_is_not_taken_for_a_marker() -> None:
    with pytest.raises(ValueError, match="users"):
        decode_control_batch(control_batch([(5, b"\x00\x00\x00\x01", b"\x00" * 6, ())], attributes=0x10))

"""Decoding of a poll, batch by batch, within the requested offsets."""

from __future__ import annotations

import pytest

from tidelog.cli.records.rows import read_rows
from tidelog.client.consumer.fetching.fetch_buffer import FetchedBatches
from tidelog.errors import MessageTooLargeError
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.records.control import MarkerKind, encode_control_batch
from tidelog.records.encode import encode_batch
from tidelog.records.header import Codec

TP = TopicPartition("t", 0)
MARKER = encode_control_batch(MarkerKind.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)


def batch(first: int, count: int, codec: Codec = Codec.NONE) -> bytes:
    values = [(0, None, b"%d" % number, ()) for number in range(first, first + count)]
    return encode_batch(values, base_offset=first, leader_epoch=2, codec=codec)


def offsets_of(*batches: bytes, fetch_offset: int = 0, end: int = 100) -> list[list[int]]:
    fetched = FetchedBatches(memoryview(b"".join(batches)), fetch_offset, 100, 100, 0, 2)
    return [rows.columns.offsets for rows in read_rows(TP, fetched, end, 1 << 20)]


def test_each_batch_is_decoded_by_itself() -> None:
    assert offsets_of(batch(0, 2), batch(2, 3)) == [[0, 1], [2, 3, 4]]


def test_records_outside_the_range_are_left_out() -> None:
    assert offsets_of(batch(0, 4), batch(4, 4), batch(8, 4), fetch_offset=2, end=6) == [[2, 3], [4, 5]]
    assert offsets_of(batch(0, 4), fetch_offset=3, end=3) == []


def test_markers_of_transactions_are_no_rows() -> None:
    assert offsets_of(MARKER, batch(1, 1)) == [[1]]


def test_next_position_is_after_the_last_row() -> None:
    fetched = FetchedBatches(memoryview(batch(5, 4)), 5, 9, 9, 0, 2)
    (rows,) = read_rows(TP, fetched, 100, 1 << 20)
    assert rows.between(0, 2).next_position == OffsetAndMetadata(7, "", 2)
    assert rows.between(0, 100) is rows


def test_too_large_batch_names_the_option_that_allows_it() -> None:
    fetched = FetchedBatches(memoryview(batch(0, 500, Codec.GZIP)), 0, 500, 500, 0, 2)
    shown = r"^t-0: the batch of offsets 0 to 499 cannot be read: .* \(--max-decompressed-batch-bytes\)$"
    with pytest.raises(MessageTooLargeError, match=shown):
        list(read_rows(TP, fetched, 500, 100))

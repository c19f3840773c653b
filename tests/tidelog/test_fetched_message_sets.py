"""Test the conversion of fetched messages of formats 0 and 1, which old logs of Kafka contain, to batches.

The reader of kafka-python is the judge.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from tests.message_sets import message, wrapped
from tidelog.client.consumer.fetching.fetch_buffer import FetchBuffer
from tidelog.errors import BrokerError, CorruptMessageError, InvalidRecordError, MessageTooLargeError
from tidelog.model import TopicPartition
from tidelog.records import Codec, TimestampType, decode_records, encode_batch, iter_headers
from tidelog.records.message_set import has_messages, to_record_batches

LIMIT = 1 << 20
LOG_APPEND_TIME = 8
TP = TopicPartition("t", 0)


class Stored(NamedTuple):
    """A record as a reader must get it."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None


class Chunk(NamedTuple):
    """Consecutive bytes of a log, and the records in them."""

    data: bytes
    records: list[Stored]


@st.composite
def chunks(draw: st.DrawFn, begin: int) -> Chunk:
    """Draw one batch, or messages of one format and codec, from offset `begin` on, with gaps as compaction leaves."""
    magic = draw(st.sampled_from([0, 1, 2]))
    codec = draw(st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, *([Codec.LZ4] if magic else [])]))
    appended = draw(st.booleans()) if magic == 1 else False
    at_ms = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 5))):
        begin += 0 if magic == 2 else draw(st.integers(0, 3))
        own_ms = draw(st.integers(0, 2**40)) if not appended or codec == Codec.NONE else at_ms
        key, value = draw(st.none() | st.binary(max_size=9)), draw(st.none() | st.binary(max_size=9))
        records.append(Stored(begin, own_ms if magic else -1, int(appended), key, value))
        begin += 1
    if magic == 2:
        rows = [(each.timestamp_ms, each.key, each.value, ()) for each in records]
        return Chunk(encode_batch(rows, base_offset=records[0].offset, codec=codec), records)
    # In a compressed message of format 1, offsets count from that of the first message that the producer sent.
    start = max(0, records[0].offset - draw(st.integers(0, 3))) if magic and codec != Codec.NONE else 0
    messages = [
        message(
            each.value,
            magic=magic,
            attributes=LOG_APPEND_TIME if appended and codec == Codec.NONE else 0,
            timestamp=each.timestamp_ms,
            key=each.key,
            offset=each.offset - start,
        )
        for each in records
    ]
    data = b"".join(messages)
    if codec != Codec.NONE:
        attributes = LOG_APPEND_TIME if appended else 0
        data = wrapped(data, codec, magic, offset=records[-1].offset, attributes=attributes, timestamp=at_ms)
    return Chunk(data, records)


@st.composite
def logs(draw: st.DrawFn) -> list[Chunk]:
    found: list[Chunk] = []
    for _ in range(draw(st.integers(1, 5))):
        found.append(draw(chunks(found[-1].records[-1].offset + 1 if found else draw(st.integers(0, 9)))))
    return found


def converted(data: bytes) -> list[Stored]:
    batches = to_record_batches(data, LIMIT)
    return [
        Stored(each.offset, each.timestamp, int(header.timestamp_type), each.key, each.value)
        for at, header in iter_headers(batches)
        for each in decode_records(batches, at)
    ]


def judged(data: bytes) -> list[Stored]:
    found, log = [], MemoryRecords(data)
    while log.has_next():
        for each in log.next_batch():
            timestamp = -1 if each.timestamp is None else each.timestamp
            found.append(Stored(each.offset, timestamp, each.timestamp_type or 0, each.key, each.value))
    return found


@given(logs())
def test_readers_get_each_record_of_a_log_of_any_formats(log: list[Chunk]) -> None:
    data = b"".join(each.data for each in log)
    expected = [record for each in log for record in each.records]
    assert judged(data) == expected
    assert converted(data) == expected


@given(logs(), st.data())
def test_incomplete_last_message_of_a_fetch_is_left_out(log: list[Chunk], draw: st.DataObject) -> None:
    data, last = b"".join(each.data for each in log[:-1]), log[-1].data
    cut = draw.draw(st.integers(0, len(last) - 1))
    found = converted(data + last[:cut])
    before = [record for each in log[:-1] for record in each.records]
    assert found[: len(before)] == before
    assert found[len(before) :] == log[-1].records[: len(found) - len(before)], "whole messages of the last chunk"


def test_messages_are_recognised_behind_batches() -> None:
    batch = encode_batch([(5, None, b"v", ())])
    assert not has_messages(batch * 3) and not has_messages(b"") and not has_messages(bytes(99))
    assert has_messages(message(magic=0)) and has_messages(batch + message()[:20])


def fetched(data: bytes, limit: int = LIMIT) -> FetchBuffer:
    buffer = FetchBuffer(TP, 7, max_decompressed_batch_bytes=limit)
    assert buffer.put(memoryview(data), high_watermark=9, log_start_offset=0, check_crcs=True)
    return buffer


def test_consumer_gets_records_of_old_formats_with_their_offsets() -> None:
    data = message(b"a", magic=0) + wrapped(message(b"b", offset=0) + message(b"c", offset=1), Codec.GZIP, offset=9)
    buffer = fetched(data)
    found = buffer.take_records(10)
    assert [(each.offset, each.timestamp, each.value, each.leader_epoch) for each in found] == [
        (7, -1, b"a", -1),
        (8, 5, b"b", -1),
        (9, 5, b"c", -1),
    ]
    assert {each.timestamp_type for each in found} == {TimestampType.CREATE_TIME}
    assert (buffer.position, buffer.fetch_offset) == (10, 10)


def test_reader_of_batches_gets_only_batches() -> None:
    batches = fetched(message(b"a")).take_batches()
    assert batches is not None and [each.value for each in decode_records(batches.records)] == [b"a"]


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (message()[:-1] + b"?", CorruptMessageError, "messages of an old format from offset 7 on: CRC"),
        (
            message(attributes=Codec.GZIP),
            CorruptMessageError,
            "from offset 7 on: a compressed block that ends too early",
        ),
        (message(timestamp=-2), InvalidRecordError, "from offset 7 on: timestamp -2 of the message at offset 7"),
        (
            wrapped(message(b"v" * 500), Codec.GZIP),
            MessageTooLargeError,
            r"from offset 7 on: .* \(max_decompressed_batch_bytes\)",
        ),
        (message()[:-1], CorruptMessageError, "no whole batch at offset 7"),
    ],
    ids=["wrong CRC", "no gzip", "bad timestamp", "too large", "incomplete"],
)
def test_messages_that_cannot_be_read_leave_the_buffer_unchanged(
    data: bytes, error: type[BrokerError], text: str
) -> None:
    buffer = FetchBuffer(TP, 7, max_decompressed_batch_bytes=400)
    with pytest.raises(error, match=text):
        buffer.put(memoryview(data), high_watermark=9, log_start_offset=0, check_crcs=True)
    assert (buffer.has_data, buffer.position, buffer.fetch_offset) == (False, 7, 7)

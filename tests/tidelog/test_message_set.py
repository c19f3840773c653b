"""Message sets, the record formats 0 and 1 of old clients: the encoder of another client is the judge."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from itertools import product
from struct import pack

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from tests.message_sets import entry, message, wrapped
from tidelog.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from tidelog.records import Codec, decode_records, encode_batch, is_message_set, read_header, to_record_batch

LIMIT = 1 << 20
NO_TIMESTAMP = -1
LOG_APPEND_TIME = 8

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]

fields = st.none() | st.binary(max_size=40)
records = st.lists(st.tuples(st.integers(0, 2**62), fields, fields), min_size=1, max_size=12)


def judged(magic: int, codec: Codec, pairs: Sequence[tuple[int, bytes | None, bytes | None]]) -> bytes:
    """Return the message set as kafka-python writes it."""
    builder = LegacyRecordBatchBuilder(magic, int(codec), LIMIT)
    for number, (timestamp, key, value) in enumerate(pairs):
        assert builder.append(number, timestamp, key, value)
    return bytes(builder.build())


@given(records)
@pytest.mark.parametrize(
    ("magic", "codec"),
    [*product([0], CODECS[:-1]), *product([1], CODECS)],  # the judge needs xxhash for lz4 in format 0
)
def test_batch_has_the_records_of_the_message_set(
    magic: int, codec: Codec, pairs: list[tuple[int, bytes | None, bytes | None]]
) -> None:
    sent = judged(magic, codec, pairs)
    assert is_message_set(sent)
    batch = to_record_batch(sent, LIMIT)
    assert read_header(batch).codec == codec
    expected = [(timestamp if magic else NO_TIMESTAMP, key, value) for timestamp, key, value in pairs]
    assert [(each.timestamp, each.key, each.value) for each in decode_records(batch)] == expected
    assert [each.offset for each in decode_records(batch)] == list(range(len(pairs)))


def test_batches_and_short_buffers_are_no_message_sets() -> None:
    assert not is_message_set(encode_batch([(5, None, b"v", ())]))
    assert not is_message_set(message()[:16])


@pytest.mark.parametrize("sized", [False, True], ids=["no content size", "a content size"])
def test_wrong_header_checksum_of_lz4_is_ignored_in_format_0_only(sized: bool) -> None:
    for magic in (0, 1):
        frame = bytearray(lz4.frame.compress(message(magic=magic), store_size=sized, block_linked=False))
        frame[14 if sized else 6] ^= 0x5A
        sent = message(bytes(frame), magic=magic, attributes=Codec.LZ4)
        if magic:
            with pytest.raises(CorruptMessageError, match="not lz4"):
                to_record_batch(sent, LIMIT)
        else:
            (record,) = decode_records(to_record_batch(sent, LIMIT))
            assert (record.key, record.value) == (b"k", b"v")


def test_lz4_of_format_0_with_another_fault_is_corrupt() -> None:
    for block in (b"", b"\x04\x22\x4d", b"\x04\x22\x4d\x18" + bytes(20)):
        with pytest.raises(CorruptMessageError, match="not lz4"):
            to_record_batch(message(block, magic=0, attributes=Codec.LZ4), LIMIT)


@pytest.mark.parametrize("cut", range(1, len(message() * 2)))
def test_every_cut_is_refused_unless_it_falls_between_messages(cut: int) -> None:
    sent = message() * 2
    if cut == len(sent) // 2:
        assert len(decode_records(to_record_batch(sent[:cut], LIMIT))) == 1
    else:
        with pytest.raises(InvalidRecordError, match="no whole message begins"):
            to_record_batch(sent[:cut], LIMIT)


@pytest.mark.parametrize("position", range(12, len(message())))
@pytest.mark.parametrize("inner", [False, True], ids=["sent", "compressed"])
def test_every_changed_byte_after_the_size_is_found(position: int, inner: bool) -> None:
    changed = bytearray(message())
    changed[position] ^= 0x40
    with pytest.raises(CorruptMessageError, match="CRC"):
        to_record_batch(wrapped(bytes(changed), Codec.GZIP) if inner else bytes(changed), LIMIT)


def test_sizes_and_lengths_beyond_their_message_are_refused() -> None:
    for size in (-(2**31), -1, 0, 13, 2**31 - 1):
        sent = bytearray(message())
        sent[8:12] = pack(">i", size)
        with pytest.raises(InvalidRecordError, match="no whole message begins at byte 0"):
            to_record_batch(bytes(sent), LIMIT)
    head = pack(">bbq", 1, 0, 5)
    for key_length, value_length in ((9, -1), (-2, -2), (2**31 - 1, 0), (0, 1)):
        lengths = pack(">ii", key_length, value_length)
        with pytest.raises(InvalidRecordError, match="a key or value of"):
            to_record_batch(entry(head + lengths), LIMIT)
    with pytest.raises(InvalidRecordError, match="3 bytes follow the value"):
        to_record_batch(entry(head + pack(">ii", -1, -1) + b"abc"), LIMIT)
    with pytest.raises(InvalidRecordError, match="format 1 has at least 22"):
        to_record_batch(entry(pack(">bbii", 1, 0, -1, -1)), LIMIT)


def test_compressed_message_is_alone_and_has_plain_messages_of_its_format() -> None:
    two = wrapped(message(), Codec.GZIP)
    for together in (two + message(), message() + two, two + two):
        with pytest.raises(InvalidRecordError, match="must be the only one"):
            to_record_batch(together, LIMIT)
    for inner in (two, message(magic=0)):
        with pytest.raises(InvalidRecordError, match="contains a compressed one, or one of another format"):
            to_record_batch(wrapped(inner, Codec.GZIP), LIMIT)
    with pytest.raises(InvalidRecordError, match="without records"):
        to_record_batch(wrapped(b"", Codec.GZIP), LIMIT)
    with pytest.raises(InvalidRecordError, match="a message set without messages"):
        to_record_batch(b"", LIMIT)
    with pytest.raises(InvalidRecordError, match="without a value"):
        to_record_batch(message(None, attributes=Codec.GZIP), LIMIT)


@pytest.mark.parametrize("codec", range(4, 8))
def test_codecs_without_a_meaning_in_old_formats_are_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=f"cannot have codec {codec}"):
        to_record_batch(message(attributes=codec), LIMIT)


def test_other_formats_within_a_message_set_are_refused() -> None:
    for magic in (2, -1):
        with pytest.raises(InvalidRecordError, match=f"a message of format {magic}"):
            to_record_batch(message() + message(magic=magic), LIMIT)


@pytest.mark.parametrize("timestamp", [-(2**63), -2, 2**63 - 1])
def test_timestamps_that_no_record_can_have_are_refused(timestamp: int) -> None:
    for sent in (message(timestamp=timestamp), wrapped(message(timestamp=timestamp), Codec.GZIP)):
        with pytest.raises(InvalidTimestampError, match=f"timestamp {timestamp}"):
            to_record_batch(sent, LIMIT)


def test_log_append_time_is_refused_in_format_1_only() -> None:
    for codec in (Codec.NONE, Codec.GZIP):
        with pytest.raises(InvalidTimestampError, match="LogAppendTime"):
            to_record_batch(message(attributes=codec | LOG_APPEND_TIME), LIMIT)
    assert len(decode_records(to_record_batch(message(magic=0, attributes=LOG_APPEND_TIME), LIMIT))) == 1


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("magic", [0, 1])
def test_few_bytes_that_expand_to_many_are_refused(magic: int, codec: Codec) -> None:
    sent = wrapped(message(bytes(LIMIT), magic=magic), codec, magic)
    assert len(sent) < LIMIT // 10
    with pytest.raises(MessageTooLargeError):
        to_record_batch(sent, LIMIT)


def test_many_empty_messages_take_a_few_times_their_decompressed_size() -> None:
    count = 100_000
    plain = message(b"", key=b"") * count
    sent = wrapped(plain, Codec.GZIP)
    assert len(sent) < len(plain) // 200
    tracemalloc.start()
    try:
        batch = to_record_batch(sent, len(plain))
        assert tracemalloc.get_traced_memory()[1] < 3 * len(plain)
    finally:
        tracemalloc.stop()
    assert read_header(batch).record_count == count


def test_records_are_the_same_on_both_sides_of_a_joined_part() -> None:
    count = 2 * 4096 + 5
    sent = b"".join(message(b"%d" % number, timestamp=number) for number in range(count))
    records = decode_records(to_record_batch(sent, len(sent)))
    assert [(each.timestamp, each.value) for each in records] == [(each, b"%d" % each) for each in range(count)]


def test_plain_message_sets_are_bounded_too() -> None:
    sent = message() * 10
    assert to_record_batch(sent, len(sent))
    with pytest.raises(MessageTooLargeError, match=f"at most {len(sent) - 1} are converted"):
        to_record_batch(sent, len(sent) - 1)

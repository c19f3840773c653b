"""Test the buffer of one partition: its limit, its two ways of reading, and the records that come back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tidelog.fetched_batches import a_batch, control_batch, unreadable_batch
from tidelog.arrow.polled_rows import decode_answer
from tidelog.arrow.requirement import required_schema
from tidelog.client.consumer.fetching.fetch_buffer import MAX_CHUNKS, ConsumerRecord, FetchBuffer
from tidelog.errors import CorruptMessageError
from tidelog.model import TopicPartition
from tidelog.records.aborted import AbortedTransaction
from tidelog.records.encode import encode_batch
from tidelog.records.header import HEADER, HEADER_BYTES, TRANSACTIONAL_BIT, read_header, seal


def a_buffer(offset: int = 0, epoch: int = -1) -> FetchBuffer:
    return FetchBuffer(TopicPartition("t", 0), offset, epoch)


def put(buffer: FetchBuffer, *batches: memoryview) -> bool:
    """Put one fetch answer with these batches; without batches, one of a single record."""
    records = memoryview(b"".join(batches or (a_batch(buffer.fetch_offset),)))
    return buffer.put(records, high_watermark=99, log_start_offset=0, check_crcs=True)


def offsets(records: list[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


def test_there_is_space_for_two_answers() -> None:
    buffer = a_buffer()
    for _ in range(MAX_CHUNKS):
        assert buffer.has_space
        assert put(buffer)
    assert not buffer.has_space
    assert offsets(buffer.take_records(1)) == [0]
    assert buffer.has_space
    assert (buffer.position, buffer.fetch_offset) == (1, MAX_CHUNKS)


def test_held_bytes_are_those_of_answers_not_yet_read() -> None:
    buffer = a_buffer()
    assert buffer.held_bytes == 0 and not buffer.has_data
    put(buffer)
    assert buffer.held_bytes == len(a_batch(0)) and buffer.has_data
    buffer.take_records(1)
    assert buffer.held_bytes == 0 and not buffer.has_data


# --- answers ----------------------------------------------------------------------------------------


def test_answer_without_records_changes_nothing() -> None:
    buffer = a_buffer(3, 4)
    assert not put(buffer, memoryview(b""))
    assert (buffer.position, buffer.fetch_offset, buffer.fetch_epoch) == (3, 3, 4)


def test_answer_may_begin_before_the_fetch_offset() -> None:
    buffer = a_buffer(3)
    assert put(buffer, a_batch(1, values=4))
    assert buffer.fetch_offset == 5 and buffer.epoch_read_from == 3
    assert offsets(buffer.take_records(9)) == [3, 4]


@pytest.mark.parametrize(
    ("records", "lacks"),
    [
        (a_batch(1), ""),
        (a_batch(3)[:-1], r": (\d+) of its (\d+) bytes \(max_partition_fetch_bytes\)"),
        (memoryview(b"x"), ": 1 bytes are no header"),
    ],
    ids=["old", "cut", "short"],
)
def test_answer_without_a_whole_batch_of_the_offset_is_corrupt(records: memoryview, lacks: str) -> None:
    buffer = a_buffer(3)
    with pytest.raises(CorruptMessageError, match=f"t-0: no whole batch at offset 3{lacks}$"):
        put(buffer, records)
    assert not buffer.has_data and buffer.fetch_offset == 3


def test_wrong_crc_is_found_before_anything_is_stored() -> None:
    buffer = a_buffer()
    damaged = bytearray(a_batch(1))
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessageError):
        put(buffer, a_batch(0), memoryview(damaged))
    assert not buffer.has_data and buffer.fetch_offset == 0 and buffer.epoch_read_from is None


# --- leader epochs ----------------------------------------------------------------------------------


def test_fetch_epoch_is_known_with_the_first_offset_that_was_read_of_it() -> None:
    buffer = a_buffer(0, 4)
    assert buffer.epoch_read_from is None
    put(buffer, a_batch(0, epoch=4, values=2), a_batch(2, epoch=6))
    assert (buffer.fetch_epoch, buffer.epoch_read_from) == (6, 2)
    put(buffer, a_batch(3, epoch=6))
    assert (buffer.fetch_epoch, buffer.epoch_read_from) == (6, 2)


def test_rewound_buffer_has_the_epochs_of_the_records_before_it() -> None:
    buffer = a_buffer()
    put(buffer, a_batch(0, epoch=4, values=2), a_batch(2, epoch=6, values=2))
    for offset, epoch, read_from in [(4, 6, 2), (3, 6, 2), (2, 4, 0), (1, 4, 0), (0, -1, None)]:
        rewound = buffer.rewound(offset)
        assert (rewound.position, rewound.fetch_offset) == (offset, offset) and not rewound.has_data
        assert (rewound.position_epoch, rewound.fetch_epoch, rewound.epoch_read_from) == (epoch, epoch, read_from)


def test_emptied_buffer_begins_at_the_position_with_its_epoch() -> None:
    buffer = a_buffer(7, 4)
    put(buffer, a_batch(7, epoch=6))
    emptied = buffer.emptied()
    assert (emptied.position, emptied.fetch_offset, emptied.fetch_epoch) == (7, 7, 4)
    assert emptied.epoch_read_from is None
    buffer.take_records(1)
    assert buffer.emptied().fetch_epoch == 6 and buffer.emptied().epoch_read_from == 7


# --- reading ----------------------------------------------------------------------------------------


def test_records_come_in_order_across_batches_and_answers() -> None:
    buffer = a_buffer()
    put(buffer, a_batch(0, values=3), a_batch(3, values=2))
    put(buffer, a_batch(5, values=2))
    assert offsets(buffer.take_records(4)) == [0, 1, 2, 3] and buffer.position == 4
    assert offsets(buffer.take_records(9)) == [4, 5, 6] and buffer.position == 7


def test_control_records_count_as_read() -> None:
    buffer = a_buffer()
    put(buffer, a_batch(0), control_batch(1, epoch=6))
    assert offsets(buffer.take_records(9)) == [0]
    assert (buffer.position, buffer.position_epoch) == (2, 6)


def test_compacted_offsets_count_as_read() -> None:
    buffer = a_buffer(3)
    put(buffer, a_batch(8))
    assert buffer.position == 3
    assert offsets(buffer.take_records(9)) == [8] and buffer.position == 9


def test_batches_are_those_of_one_answer() -> None:
    buffer = a_buffer(1, 4)
    put(buffer, a_batch(0, values=3), a_batch(3))
    put(buffer, a_batch(4))
    batches = buffer.take_batches()
    assert batches is not None and (batches.fetch_offset, batches.next_offset, batches.leader_epoch) == (1, 4, 5)
    assert (batches.high_watermark, batches.log_start_offset) == (99, 0)
    assert bytes(batches.records) == bytes(a_batch(0, values=3)) + bytes(a_batch(3))
    assert (buffer.position, buffer.position_epoch) == (4, 5)
    assert buffer.take_batches() is not None and buffer.take_batches() is None


def test_batches_begin_with_the_one_that_is_partly_read() -> None:
    buffer = a_buffer()
    put(buffer, a_batch(0, values=2), a_batch(2, values=2), a_batch(4))
    buffer.take_records(3)
    batches = buffer.take_batches()
    assert batches is not None and (batches.fetch_offset, batches.next_offset) == (3, 5)
    assert bytes(batches.records) == bytes(a_batch(2, values=2)) + bytes(a_batch(4))
    assert buffer.take_records(9) == [] and buffer.position == 5


def test_unreadable_batch_ends_the_records_and_is_passed_as_a_whole() -> None:
    buffer = a_buffer()
    put(buffer, a_batch(0), unreadable_batch(1), a_batch(2))
    assert offsets(buffer.take_records(9)) == [0]
    assert isinstance(buffer.unreadable, CorruptMessageError)
    assert str(buffer.unreadable).startswith("t-0: the batch of offsets 1 to 1 cannot be read: ")
    assert buffer.take_records(9) == [] and buffer.position == 1 and not buffer.has_space
    batches = buffer.take_batches()
    assert batches is not None and (batches.fetch_offset, batches.next_offset) == (1, 3)
    assert buffer.unreadable is None and buffer.has_space


# --- records that come back -------------------------------------------------------------------------


def test_records_put_back_are_returned_again_first() -> None:
    buffer = a_buffer()
    put(buffer, a_batch(0, values=2), a_batch(2, epoch=6, values=2))
    taken = buffer.take_records(3)
    buffer.take_back(taken[1:])
    assert (buffer.position, buffer.position_epoch) == (1, 5)
    assert offsets(buffer.take_records(9)) == [1, 2, 3]


def test_records_put_back_without_their_batches_must_be_fetched_again() -> None:
    buffer = a_buffer()
    put(buffer)
    assert not buffer.has_lost_batches
    buffer.take_back(buffer.take_records(1))
    assert buffer.has_lost_batches
    put(buffer)
    assert buffer.has_lost_batches
    buffer.take_records(1)
    assert not buffer.has_lost_batches


class Log:
    """The log of a leader, made of batches of records, control batches and gaps that compaction has left."""

    def __init__(self, parts: list[tuple[str, int]]) -> None:
        self.batches: list[memoryview] = []
        self.ends: list[int] = []
        self.offsets: list[int] = []
        end = 0
        for epoch, (kind, count) in enumerate(parts):
            first = end + 3 if kind == "gap" else end
            end = first + (1 if kind == "control" else count)
            batch = control_batch(first, epoch=epoch)
            if kind != "control":
                batch = a_batch(first, epoch=epoch, values=count)
                self.offsets += range(first, end)
            self.batches.append(batch)
            self.ends.append(end)

    def read(self, offset: int, most: int) -> memoryview:
        """Return up to `most` batches, from the one that holds `offset` or follows it."""
        found = [batch for batch, end in zip(self.batches, self.ends, strict=True) if end > offset]
        return memoryview(b"".join(found[:most]))


KINDS = st.sampled_from(["records", "records", "control", "gap"])
ACTIONS = st.sampled_from(["put", "put", "take", "take", "decode", "back", "batches", "empty", "rewind"])


@given(
    parts=st.lists(st.tuples(KINDS, st.integers(1, 4)), min_size=1, max_size=20),
    story=st.lists(st.tuples(ACTIONS, st.integers(1, 6)), max_size=60),
)
def test_any_story_reads_the_log_in_order(parts: list[tuple[str, int]], story: list[tuple[str, int]]) -> None:
    log, buffer = Log(parts), a_buffer()
    taken: list[ConsumerRecord] = []
    for what, number in story:
        position = buffer.position
        ahead = [offset for offset in log.offsets if position <= offset < buffer.fetch_offset]
        if what == "put" and buffer.has_space:
            put(buffer, log.read(buffer.fetch_offset, number))
            assert buffer.position == position
        elif what == "take":
            taken = buffer.take_records(number)
            assert offsets(taken) == ahead[:number]
        elif what == "decode":
            waiting = buffer.decode_ahead(number)
            assert min(number, len(ahead)) <= waiting <= len(ahead)
            assert buffer.position == position if waiting else not ahead
        elif what == "back" and taken:
            buffer.take_back(taken[-number:])
            assert buffer.position == taken[-number:][0].offset
            taken = taken[:-number]
        elif what == "batches" and not buffer.has_lost_batches:
            batches, taken = buffer.take_batches(), []
            assert (batches is None) == (position == buffer.fetch_offset)
            if batches is not None:
                assert batches.fetch_offset == position < batches.next_offset == buffer.position
        elif what in ("empty", "rewind"):
            offset = position if what == "empty" else max(0, position - number)
            buffer, taken = buffer.emptied() if what == "empty" else buffer.rewound(offset), []
            assert buffer.position == buffer.fetch_offset == offset
        assert buffer.position <= buffer.fetch_offset
        assert buffer.has_data or buffer.position == buffer.fetch_offset


def test_incomplete_last_batch_is_left_out() -> None:
    whole, cut = encode_batch([(0, None, b"a", ())], base_offset=5), encode_batch([(0, None, b"b", ())], base_offset=6)
    for left in (1, HEADER_BYTES - 1, HEADER_BYTES, len(cut) - 1):
        buffer = FetchBuffer(TopicPartition("t", 0), 5)
        assert buffer.put(memoryview(whole + cut[:left]), high_watermark=7, log_start_offset=0, check_crcs=True)
        assert [record.value for record in buffer.take_records(10)] == [b"a"]
        assert (buffer.position, buffer.fetch_offset, buffer.has_data) == (6, 6, False)


def test_records_of_aborted_transactions_are_passed_over() -> None:
    aborted = bytearray(encode_batch([(0, None, b"a", ())], base_offset=5, producer_id=7, producer_epoch=0))
    HEADER.pack_into(aborted, 0, *read_header(aborted)._replace(attributes=TRANSACTIONAL_BIT))
    seal(aborted, 0, len(aborted))
    buffer = FetchBuffer(TopicPartition("t", 0), 5)
    bounds = {"high_watermark": 6, "log_start_offset": 0, "check_crcs": True}
    assert buffer.put(memoryview(aborted), aborted=[AbortedTransaction(7, 5)], **bounds)
    assert (buffer.take_records(10), buffer.position, buffer.has_data) == ([], 6, False)


def read_as_records(buffer: FetchBuffer) -> list[Any]:
    return [record.value for record in buffer.take_records(10)]


def read_as_columns(buffer: FetchBuffer) -> list[Any]:
    schema = required_schema("a test", ["value"], headers=False)
    rows = buffer.take_decoded(partial(decode_answer, schema, 1000, buffer.topic_partition))
    return [] if rows is None else [value for batch in rows.batches for value in batch.column("value").to_pylist()]


@pytest.mark.parametrize("read", [read_as_records, read_as_columns])
@pytest.mark.parametrize("check_crcs", [False, True])
def test_consumer_checks_the_crc_of_a_batch_only_if_it_is_told_to(
    check_crcs: bool, read: Callable[[FetchBuffer], list[Any]]
) -> None:
    damaged = bytearray(encode_batch([(0, None, b"damaged", ())]))
    damaged[-3] ^= 1
    buffer = FetchBuffer(TopicPartition("t", 0), 0)
    expected = pytest.raises(CorruptMessageError, match="CRC") if check_crcs else nullcontext()
    with expected:
        buffer.put(memoryview(damaged), high_watermark=1, log_start_offset=0, check_crcs=check_crcs)
    assert read(buffer) == ([] if check_crcs else [b"damagdd"])

"""Both indexes compared with lists of their entries, and a segment's reaction to a damaged index."""

from __future__ import annotations

import tempfile
from functools import partial
from itertools import combinations
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.segments.offset_index import OffsetIndex, OffsetPosition
from storage.segments.time_index import IndexedTime, TimeIndex
from storage.segments.timestamp_search import TimestampOffset
from tests.storage.logs import NOW, UnsyncedFiles, append, count_steps, first_at_or_after, largest, open_log, records_of

ENTRY = Struct(">qi")
BASE = 1000


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=20))
def test_a_look_up_by_offset_gives_the_greatest_entry_that_is_not_above_it(gaps: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        index, entries, offset, position = OffsetIndex(UnsyncedFiles().open(Path(name) / "i"), BASE), [], BASE, 0
        for more_offsets, more_bytes in gaps:
            offset, position = offset + 1 + more_offsets, position + more_bytes
            index.append(offset, position)
            entries.append(OffsetPosition(offset, position))
        for target in range(BASE - 1, offset + 3):
            below = [entry for entry in entries if entry.offset <= target]
            assert index.floor(target) == (below[-1] if below else None)
        for end in range(offset + 2, BASE - 1, -1):
            index.truncate_to(end)
            kept = [entry for entry in entries if entry.offset < end]
            assert (len(index), index.last) == (len(kept), kept[-1] if kept else None)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=20))
def test_a_look_up_by_time_gives_the_first_entry_that_reaches_it(gaps: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        index, entries, timestamp, offset = TimeIndex(UnsyncedFiles().open(Path(name) / "i"), BASE), [], 5, BASE
        for more_time, more_offsets in gaps:
            timestamp, offset = timestamp + more_time, offset + more_offsets
            assert index.maybe_append(timestamp, offset)
            assert not index.maybe_append(timestamp, offset + 1)
            entries.append(IndexedTime(timestamp, offset))
        for target in range(timestamp + 2):
            assert index.ceiling_slot(target) == sum(entry.timestamp < target for entry in entries)
        for end in range(BASE, offset + 2):
            before = [entry for entry in entries if entry.offset < end]
            assert index.last_before(end) == (before[-1] if before else None)


def test_a_last_entry_below_the_running_maximum_hides_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=150)
    for timestamp in (100, 1, 1, 1, 1, 1):
        append(log, timestamp)
    log.flush()
    log.abandon()
    path = tmp_path / "00000000000000000000.timeindex"
    assert path.read_bytes() == ENTRY.pack(100, 0)
    path.write_bytes(ENTRY.pack(1, 5))  # batch 5 holds a 1, so that the entry alone looks right

    log = open_log(tmp_path, index_interval_bytes=150)
    assert log.largest_timestamp == 100
    assert log.offset_for_timestamp(50, log.log_end_offset) == (100, 0, 0)


@pytest.mark.parametrize("interval", [0, 150])
def test_plausible_but_wrong_time_entry_changes_no_answer(tmp_path: Path, interval: int) -> None:
    log = open_log(tmp_path, index_interval_bytes=interval)
    for number in range(8):
        append(log, NOW + 10 * number)  # the largest timestamp of its interval comes first, well before the entries
        append(log, NOW - 1)
        append(log, NOW - 1)
    log.roll(NOW)
    records = records_of(log)
    path = tmp_path / "00000000000000000000.timeindex"
    good = path.read_bytes()
    for slot in range(len(good) // ENTRY.size):
        timestamp, offset = ENTRY.unpack_from(good, slot * ENTRY.size)
        for wrong in (timestamp - 5, timestamp + 5):
            data = bytearray(good)
            ENTRY.pack_into(data, slot * ENTRY.size, wrong, offset)
            for target in range(NOW, NOW + 80, 3):
                path.write_bytes(data)
                log.segments[0].close()  # so that the index is read again
                expected = first_at_or_after(records, target, log.log_end_offset)
                assert log.offset_for_timestamp(target, log.log_end_offset) == expected


def test_zeros_are_no_entries_and_cost_time_once(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    for number in range(8):
        append(log, NOW + number)
    log.roll(NOW)
    path = tmp_path / "00000000000000000000.index"
    good = path.read_bytes()
    path.write_bytes(bytes(len(good)))  # each entry would name the first batch, whose only record has relative offset 0
    log.segments[0].close()  # so that the index is read again
    assert log.offset_for_timestamp(NOW + 5, log.log_end_offset) == (NOW + 5, 5, 0)
    assert path.read_bytes() == good


@pytest.mark.parametrize("by_time", [True, False], ids=["by time", "the largest"])
@pytest.mark.parametrize("clean", [True, False], ids=["closed in order", "after a crash"])
def test_entries_missing_in_a_time_index_change_no_answer(tmp_path: Path, clean: bool, by_time: bool) -> None:
    """The remaining entries are right and increase, so only the log shows that entries are missing."""
    log = open_log(tmp_path, index_interval_bytes=150)
    for number in range(18):
        append(log, NOW + (number * 7) % 12 + number // 4 * 8)
    log.roll(NOW)
    append(log, NOW)
    records, end = records_of(log), log.log_end_offset
    log.close()
    path = tmp_path / "00000000000000000000.timeindex"
    good = path.read_bytes()
    entries = [good[at : at + ENTRY.size] for at in range(0, len(good), ENTRY.size)]
    assert len(entries) >= 5
    for count in range(len(entries)):
        for kept in combinations(entries, count):
            path.write_bytes(b"".join(kept))
            log = open_log(tmp_path, index_interval_bytes=150, recovery_point=end - 1, clean=clean)
            if by_time:
                for target in sorted({record.timestamp for record, _ in records}):
                    assert log.offset_for_timestamp(target, end) == first_at_or_after(records, target, end)
            else:
                for bound in range(1, end):
                    assert log.offset_of_max_timestamp(bound) == largest(records, bound)
            log.abandon()


def test_constant_maximum_is_scanned_once_and_in_several_steps(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=1000, retention_ms=-1)
    append(log, NOW)
    for _ in range(2_500):
        append(log, NOW - 1)
    append(log, NOW + 1)
    end, found = log.log_end_offset, TimestampOffset(NOW + 1, 2_501, 0)
    ask = partial(log.offset_for_timestamp_steps, NOW + 1, end)
    assert count_steps(ask()) == (found, 2), "a thousand batches in one step"
    assert count_steps(ask()) == (found, 0), "the index notes that the maximum is confirmed"


def test_constant_maximum_is_forgotten_after_a_truncation(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=100)
    for timestamp in (50, *[1] * 20, 60):
        append(log, timestamp)
    assert log.offset_for_timestamp(60, log.log_end_offset) == (60, 21, 0)
    log.truncate_to(5)
    for timestamp in (1, 70, *[1] * 20, 80):
        append(log, timestamp)
    log.segments[0].time_index.truncate_to(6)  # the entry of 70 and 80
    log.segments[0].time_index.maybe_append(80, 27)
    assert log.offset_for_timestamp(60, log.log_end_offset) == (70, 6, 0)

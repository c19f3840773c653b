"""Both indexes against lists of their entries, and what a segment does with one that has gone wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.segments.offset_index import OffsetIndex, OffsetPosition
from storage.segments.time_index import IndexedTime, TimeIndex
from tests.storage.logs import NOW, UnsyncedFiles, append, first_at_or_after, open_log, records_of

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
    path.write_bytes(ENTRY.pack(1, 5))  # batch 5 does hold a 1, so that the entry alone looks right

    log = open_log(tmp_path, index_interval_bytes=150)
    assert log.largest_timestamp == 100
    assert log.offset_for_timestamp(50, log.log_end_offset) == (100, 0, 0)


@pytest.mark.parametrize("interval", [0, 150])
def test_an_entry_that_changed_to_a_plausible_time_misleads_no_look_up(tmp_path: Path, interval: int) -> None:
    log = open_log(tmp_path, index_interval_bytes=interval)
    for number in range(8):
        append(log, NOW + 10 * number)  # the largest of its interval comes first, well before the entries
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
                log.segments[0].close()  # so that it is read again
                expected = first_at_or_after(records, target, log.log_end_offset)
                assert log.offset_for_timestamp(target, log.log_end_offset) == expected

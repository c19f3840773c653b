"""The public methods of a log."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from storage.file_names import file_name
from storage.files import RealFile
from storage.log.log import Log, LogOwner
from tests.storage.logs import NOW, UnsyncedFiles, append, batch, config, open_log, read_all
from tidelog.errors import (
    CorruptMessageError,
    InvalidRecordError,
    OffsetOutOfRangeError,
)
from tidelog.records import decode_records, iter_headers, read_header


def test_leader_assigns_offsets_and_epoch_without_changing_the_input(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    sent = batch(NOW, NOW, NOW)
    frame = memoryview(bytearray(sent))
    assert log.append_as_leader(frame, 4, NOW)[:3] == (0, 2, -1)
    assert log.append_as_leader(frame, 4, NOW)[:3] == (3, 5, -1)
    assert bytes(frame) == sent
    headers = [header for _, header in iter_headers(log.read(0, 10_000))]
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [(0, 4), (3, 4)]
    assert log.log_end_offset == 6
    assert log.end_offset_for_epoch(4) == (4, 6)


def test_a_segment_is_rolled_before_it_grows_past_its_size(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for _ in range(10):
        append(log)
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("*.log"))]
    assert len(sizes) > 1
    assert max(sizes) <= 300
    assert sum(sizes) == log.size_bytes
    assert [path.name for path in sorted(tmp_path.glob("*.log"))] == [f"{o:020d}.log" for o in log.segment_base_offsets]


@pytest.mark.parametrize("forgotten", [False, True], ids=["read before", "not read before"])
def test_bytes_between_offsets_are_known_without_reading_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    log = open_log(tmp_path, segment_bytes=70_000)
    for _ in range(12):
        log.append_as_leader(batch(NOW, NOW, value=bytes(10_000)), 0, NOW)
    assert len(log.segments) == 4
    taken, read = 0, RealFile.read

    def counted(self: RealFile, position: int, size: int) -> bytes:
        nonlocal taken
        data = read(self, position, size)
        taken += len(data)
        return data

    for offset in range(log.log_end_offset):
        for end in range(offset // 2 * 2 + 2, log.log_end_offset + 1, 2):
            data = log.read(offset, 1 << 20, end)
            if forgotten:
                log._reader.forget()
            taken = 0
            with monkeypatch.context() as patched:
                patched.setattr(RealFile, "read", counted)
                found = log.bytes_between(offset, end)
            ended = any(offset < begun <= end for begun in log.segment_base_offsets)
            assert found == (None if ended else len(data))
            assert taken < 5_000


def test_a_segment_takes_exactly_its_size(tmp_path: Path) -> None:
    size = len(batch(NOW))
    log = open_log(tmp_path, segment_bytes=3 * size)
    for _ in range(7):
        append(log)
    assert log.segment_base_offsets == (0, 3, 6)


def test_a_segment_is_rolled_when_an_index_is_full(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_index_bytes=48, index_interval_bytes=0)
    for number in range(20):
        append(log, NOW - 100 + number)
    assert len(log.segment_base_offsets) > 1
    assert all(path.stat().st_size <= 48 for path in tmp_path.glob("*index"))


def test_reads_return_whole_batches_within_the_limit_and_below_the_bound(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=700, index_interval_bytes=100)
    for _ in range(40):
        append(log, NOW, NOW)
    data = read_all(log)
    size = read_header(data).size_bytes
    chance = random.Random(5)
    for _ in range(300):
        offset, limit = chance.randrange(80), chance.randrange(4 * size)
        bound = chance.randrange(81)
        if chance.random() < 0.5:
            log._reader.forget()
        found = log.read(offset, limit, bound)
        headers = [header for _, header in iter_headers(found)]
        assert sum(header.size_bytes for header in headers) == len(found)
        if offset >= bound:
            assert found == b""
            continue
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        assert len(found) <= max(limit, size)
        assert all(header.base_offset < bound for header in headers)
        assert found == data[offset // 2 * size :][: len(found)]


def test_read_without_at_least_one_omits_a_larger_batch(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    append(log)
    assert log.read(0, 10, at_least_one=False) == b""
    assert log.read(0, 10) == read_all(log)


def test_read_at_the_log_end_is_empty_and_past_it_out_of_range(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, NOW, NOW)
    assert log.read(2, 100) == b""
    for offset in (-1, 3):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 100)
    log.raise_log_start(1)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, 100)


def test_a_follower_copies_the_leaders_bytes(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader", segment_bytes=900)
    follower = open_log(tmp_path / "follower", segment_bytes=500, index_interval_bytes=100)
    for number in range(30):
        append(leader, NOW - number, leader_epoch=number // 9)
    while data := leader.read(follower.log_end_offset, 777):
        follower.append_as_follower(bytes(data) + b"\x00\x00")
    assert read_all(follower) == read_all(leader)
    assert follower.epochs == leader.epochs
    assert follower.offset_for_timestamp(NOW - 5, 30) == leader.offset_for_timestamp(NOW - 5, 30)


def test_follower_copies_the_gaps_of_a_compacted_leader_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, cleanup_policy="compact", segment_bytes=3 * len(batch(NOW)))
    fetched = b"".join(batch(NOW + offset, base_offset=offset, leader_epoch=0) for offset in (2, 3, 9, 10, 11, 40))
    assert log.append_as_follower(fetched)[:2] == (2, 40)
    assert (log.log_end_offset, log.segment_base_offsets) == (41, (0, 10))
    for asked, there in ((0, 2), (3, 3), (4, 9), (11, 11), (12, 40)):
        assert read_header(log.read(asked, 1)).base_offset == there
    assert log.read(4, 1_000, 9) == b"", "the batch after the gap lies at the bound"
    found = log.offset_for_timestamp(NOW + 12, 41)
    assert found is not None
    assert found.offset == 40
    log.close()
    log = open_log(tmp_path, cleanup_policy="compact", recovery_point=41)
    assert read_all(log) == fetched
    assert log.truncate_to(20)
    assert log.log_end_offset == 12
    log.abandon()
    log = open_log(tmp_path, cleanup_policy="compact", clean=False)
    assert log.log_end_offset == 12
    assert read_all(log) == fetched[: 5 * len(batch(NOW))]


@pytest.mark.parametrize(
    "dropped", [(), ((0, 10), (10, 20), (20, 35))], ids=["empty", "with offsets that compaction dropped"]
)
def test_a_log_takes_the_batch_within_which_the_leaders_log_begins(
    tmp_path: Path, dropped: Sequence[tuple[int, int]]
) -> None:
    log = open_log(tmp_path)
    for base, end in dropped:
        log.append_as_follower(batch(*[NOW] * (end - base), base_offset=base, leader_epoch=1))
    if not dropped:
        log.truncate_fully_and_start_at(35)
    start = log.log_start_offset
    first, damaged = (batch(*[NOW] * 10, base_offset=base, leader_epoch=2) for base in (30, 40))
    with pytest.raises(CorruptMessageError):
        log.append_as_follower(first + damaged[:-1] + b"?", leader_log_start=35)
    if dropped:
        with pytest.raises(InvalidRecordError):
            log.append_as_follower(first, leader_log_start=34)
    assert (log.log_start_offset, log.log_end_offset) == (start, 35)
    # An empty log accepts it too if its leader lost its log start in a crash.
    assert log.append_as_follower(first, leader_log_start=35 if dropped else 0)[:2] == (30, 39)
    assert (log.log_start_offset, log.log_end_offset, log.segment_base_offsets) == (35, 40, (30,))
    assert log.read(35, 1) == first
    assert log.epochs == ((2, 35),)
    with pytest.raises(InvalidRecordError):
        log.append_as_follower(first, leader_log_start=35)
    assert read_all(log) == first


def test_follower_log_refuses_batches_below_the_leaders_log_start(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(35)
    with pytest.raises(InvalidRecordError):
        log.append_as_follower(batch(*[NOW] * 5, base_offset=30, leader_epoch=2), leader_log_start=35)
    assert log.segment_base_offsets == (35,)


def test_truncation_at_a_damaged_batch_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=1_000_000)
    for count in (10, 5, 1):
        for _ in range(count):
            append(log)
        log.roll(NOW)
    before = [(segment.base_offset, segment.next_offset) for segment in log.segments]
    path = tmp_path / file_name(0, ".log")
    data = bytearray(path.read_bytes())
    data[5 * len(batch(NOW)) + 16] = 9  # the magic byte of the sixth batch
    path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(CorruptMessageError):
            log.truncate_to(8)
        assert [(segment.base_offset, segment.next_offset) for segment in log.segments] == before
    assert log.log_end_offset == 16


def test_out_of_range_error_names_the_offsets_of_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, NOW, NOW, NOW)
    log.raise_log_start(1)
    for offset in (0, 4):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.read(offset, 100)
        assert (caught.value.first, caught.value.end) == (1, 3)


@pytest.mark.parametrize("base_offset", [0, 1, 2])
def test_follower_refuses_decreasing_offsets(tmp_path: Path, base_offset: int) -> None:
    log = open_log(tmp_path)
    append(log, NOW, NOW)
    before = read_all(log)
    with pytest.raises(InvalidRecordError):
        log.append_as_follower(batch(NOW, base_offset=2, leader_epoch=0) + batch(NOW, base_offset=base_offset))
    assert read_all(log) == before


def test_log_append_time_continues_from_the_old_leaders_timestamps(tmp_path: Path) -> None:
    settings = {"message_timestamp_type": "LogAppendTime"}
    leader, follower = open_log(tmp_path / "a", **settings), open_log(tmp_path / "b", **settings)
    leader.append_as_leader(batch(1), 0, NOW)
    follower.append_as_follower(read_all(leader))
    assert follower.append_as_leader(batch(1), 1, NOW - 500).log_append_time_ms == NOW


def test_log_append_time_never_decreases(tmp_path: Path) -> None:
    settings = {"message_timestamp_type": "LogAppendTime"}
    log = open_log(tmp_path, **settings)
    assert log.append_as_leader(batch(1, 2), 0, NOW).log_append_time_ms == NOW
    assert log.append_as_leader(batch(NOW + 10**9), 0, NOW - 500).log_append_time_ms == NOW
    log.close()
    log = open_log(tmp_path, **settings)
    assert log.append_as_leader(batch(1), 0, NOW - 500).log_append_time_ms == NOW
    assert log.append_as_leader(batch(1), 0, NOW + 5).log_append_time_ms == NOW + 5
    data = read_all(log)
    stamps = [record.timestamp for position, _ in iter_headers(data) for record in decode_records(data, position)]
    assert stamps == [NOW, NOW, NOW, NOW, NOW + 5]


def test_truncation_takes_everything_with_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=400, index_interval_bytes=100)
    for number in range(30):
        append(log, NOW - 100 + number, leader_epoch=number // 10)
    whole = read_all(log)
    assert not log.truncate_to(30)
    assert log.truncate_to(12)
    assert log.log_end_offset == 12
    assert whole.startswith(read_all(log))
    assert log.epochs == ((0, 0), (1, 10))
    assert log.end_offset_for_epoch(1) == (1, 12)
    assert log.end_offset_for_epoch(2) is None
    assert log.largest_timestamp == NOW - 89
    assert log.offset_for_timestamp(NOW - 88, 12) is None
    assert append(log, NOW, leader_epoch=3) == 12
    log.abandon()
    again = open_log(tmp_path, clean=False, segment_bytes=400, index_interval_bytes=100)
    assert again.epochs == ((0, 0), (1, 10), (3, 12))


@pytest.mark.parametrize("end", range(12))
def test_truncation_at_segment_borders_sets_the_log_end(tmp_path: Path, end: int) -> None:
    log = open_log(tmp_path, segment_bytes=3 * len(batch(NOW)))
    for number in range(12):
        append(log, NOW - number)
    whole = read_all(log)
    assert log.truncate_to(end)
    assert log.log_end_offset == end
    assert read_all(log) == whole[: end * len(batch(NOW))]
    assert append(log) == end


def test_trimming_removes_the_epochs_of_trimmed_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(6):
        append(log, leader_epoch=number // 2)
    log.raise_log_start(3)
    assert log.epochs == ((1, 3), (2, 4))
    assert log.end_offset_for_epoch(0) == (0, 3)


def test_remembered_position_is_dropped_after_a_truncation(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        append(log, NOW, NOW)
    for offset in (0, 2, 4):
        log.read(offset, 100)
    log.truncate_to(2)
    append(log, NOW, NOW, NOW, NOW, leader_epoch=1)
    append(log, leader_epoch=1)
    assert read_header(log.read(4, 100)).base_offset == 2
    assert read_header(log.read(6, 100)).base_offset == 6


def test_truncation_inside_a_batch_removes_the_whole_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, NOW)
    append(log, NOW, NOW, NOW)
    assert log.truncate_to(2)
    assert log.log_end_offset == 1


def test_truncation_at_the_log_end_removes_only_an_epoch_without_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.assign_leader_epoch(1)
    append(log, NOW, leader_epoch=1)
    log.assign_leader_epoch(4)
    assert log.latest_epoch == 4
    assert not log.truncate_to(log.log_end_offset)
    assert (log.latest_epoch, log.log_end_offset) == (1, 1)


def test_truncation_below_the_log_start_restarts_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(5):
        append(log, leader_epoch=1)
    log.raise_log_start(3)
    log.truncate_to(1)
    assert (log.log_start_offset, log.log_end_offset, log.epochs) == (1, 1, ())
    append(log, leader_epoch=2)
    log.truncate_fully_and_start_at(70)
    assert (log.log_start_offset, log.log_end_offset, log.epochs) == (70, 70, ())
    assert append(log) == 70
    log.close()
    assert open_log(tmp_path).log_start_offset == 70


@pytest.mark.parametrize("start", [1, 2])
def test_log_is_empty_after_truncation_of_the_batch_that_holds_its_start(tmp_path: Path, start: int) -> None:
    log = open_log(tmp_path)
    append(log, NOW, NOW, NOW, NOW)
    log.raise_log_start(start)
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def announcing_log(directory: Path) -> tuple[Log, list[tuple[int, int]]]:
    """Record the offset of each announced truncation, with the log end at that moment."""
    announced: list[tuple[int, int]] = []

    class Owner(LogOwner):
        def truncation(self, offset: int) -> None:
            announced.append((offset, log.log_end_offset))

    log = Log.open(directory, config(), UnsyncedFiles(), recovery_point=0, clean=True, owner=Owner())
    return log, announced


def test_owner_is_told_before_and_after_a_truncation(tmp_path: Path) -> None:
    log, announced = announcing_log(tmp_path)
    for _ in range(5):
        append(log)
    log.flush()
    assert log.recovery_point == 5
    log.truncate_to(2)
    log.truncate_to(1)
    assert announced == [(2, 5), (2, 2), (1, 2), (1, 1)]
    assert log.recovery_point == 1
    log.truncate_fully_and_start_at(0)
    assert announced[4:] == [(0, 1), (0, 0)]


def test_owner_is_told_that_a_truncation_removes_a_split_batch(tmp_path: Path) -> None:
    log, announced = announcing_log(tmp_path)
    append(log)
    append(log, NOW, NOW, NOW)
    log.flush()
    log.truncate_to(3)
    assert (log.log_end_offset, log.recovery_point) == (1, 1)
    assert announced == [(3, 4), (1, 1)], "the whole batch with offset 3 was removed"


def test_an_epoch_in_which_nothing_was_written_leaves_no_trace(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.assign_leader_epoch(1)
    log.assign_leader_epoch(2)
    append(log, leader_epoch=2)
    assert log.epochs == ((2, 0),)
    assert log.latest_epoch == 2


def test_the_topic_id_survives(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.topic_id == ""
    log.assign_topic_id("AAAAAAAAAAAAAAAAAAAAAQ")
    assert "topic_id: AAAAAAAAAAAAAAAAAAAAAQ\n" in (tmp_path / "partition.metadata").read_text()
    assert open_log(tmp_path).topic_id == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_read_reports_a_batch_with_an_offset_past_the_log_end(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        append(log)
    with (tmp_path / "00000000000000000000.log").open("r+b") as file:
        file.seek(2 * len(batch(NOW)))
        file.write(b"\x04")  # the first byte of its base offset, which no CRC covers
    assert len(log.read(0, 10_000)) == 2 * len(batch(NOW))
    with pytest.raises(CorruptMessageError, match="does not belong to offset"):
        log.read(2, 10_000)


def test_calls_say_whether_they_changed_anything(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert not log.roll(NOW)
    for _ in range(3):
        append(log)
    assert log.roll(NOW) and not log.roll(NOW)
    assert log.segment_base_offsets == (0, 3)
    assert log.raise_log_start(2) and not log.raise_log_start(2) and not log.raise_log_start(1)
    assert not log.truncate_to(3)
    assert log.truncate_to(1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


def test_read_of_an_incomplete_batch_raises_corrupt_message(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(batch(NOW, value=b"x" * 20_000), 0, NOW)
    os.truncate(log.segments[0].log.path, 10_000)
    with pytest.raises(CorruptMessageError, match="is incomplete"):
        log.read(0, 1)


def test_only_the_segments_in_use_hold_descriptors(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=100)
    for _ in range(20):
        append(log)
    read_all(log)
    log.close()
    log = open_log(tmp_path, segment_bytes=100)
    opened: list[str] = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            opened.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    assert len([path for path in opened if path.startswith(str(tmp_path))]) <= 3
    log.close()

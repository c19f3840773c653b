"""The segments that retention deletes, and the state of the log afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.configs.log_config import LogConfig
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.files import Files
from storage.log.log import Log
from storage.log.retention import SegmentFacts, count_deletable, written_ms
from tests.storage.logs import NOW, UnsyncedFiles, append, batch, config, open_log, read_all, records_of
from tidelog.errors import OffsetOutOfRangeError, StorageError
from tidelog.model import NO_TIMESTAMP
from verify.simulation.disks.failing_files import FailingFiles, Fault

DAY = 86_400_000
SIZE = len(batch(NOW))
PER_SEGMENT = 3


class Unlistable(UnsyncedFiles):
    """While set, no descriptor is free for listing a directory."""

    unlistable = False

    def names(self, directory: Path) -> list[str]:
        if self.unlistable:
            raise OutOfDescriptorsError(f"{directory}: too many open files")
        return super().names(directory)


def unasked() -> int:
    raise AssertionError("the file's time may be wrong, and is not needed here")


def facts(number: int, largest: int, *, modified: int | None = None, size: int = 100) -> SegmentFacts:
    """Return the segment of offsets [10·number, 10·number + 10)."""
    return SegmentFacts(10 * number + 10, size, largest, unasked if modified is None else lambda: modified)


def deletable(
    segments: list[SegmentFacts],
    settings: LogConfig,
    *,
    log_start: int = 0,
    high_watermark: int = 10**6,
    now: int = NOW,
) -> int:
    return count_deletable(segments, settings, log_start_offset=log_start, high_watermark=high_watermark, now_ms=now)


def filled(directory: Path, batches: int = 9, files: Files | None = None, **settings: object) -> Log:
    """Write three batches to a segment, two of them a day apart, the last one at NOW."""
    chosen = config(**{"segment_bytes": PER_SEGMENT * SIZE, "segment_ms": 10**12, **settings})
    log = Log.open(directory, chosen, files or UnsyncedFiles(), recovery_point=0, clean=True)
    for number in range(batches):
        append(log, NOW - (batches - 1 - number) * DAY)
    return log


# --- the rules -----------------------------------------------------------------------------------------


def test_a_segment_is_as_old_as_its_youngest_record_up_to_now_says() -> None:
    assert [written_ms(stamp, unasked, NOW) for stamp in (0, NOW - 1, NOW)] == [0, NOW - 1, NOW]
    assert [written_ms(stamp, lambda: 7, NOW) for stamp in (NO_TIMESTAMP, NOW + 1)] == [7, 7]


def test_segment_is_deleted_when_its_youngest_record_is_too_old() -> None:
    segments = [facts(0, NOW - 3 * DAY), facts(1, NOW - 2 * DAY), facts(2, NOW - DAY)]
    assert deletable(segments, config(retention_ms=2 * DAY)) == 1
    assert deletable(segments, config(retention_ms=2 * DAY - 1)) == 2
    assert deletable(segments, config(retention_ms=DAY - 1)) == 3
    assert deletable(segments, config(retention_ms=-1)) == 0
    assert deletable(segments, config(retention_ms=0)) == 3


def test_old_segment_after_a_young_one_stays() -> None:
    assert deletable([facts(0, NOW), facts(1, NOW - 9 * DAY), facts(2, NOW)], config(retention_ms=DAY)) == 0


def test_a_record_from_the_far_future_is_as_old_as_its_file() -> None:
    future = NOW + 1000 * DAY
    settings = config(retention_ms=2 * DAY)
    assert deletable([facts(0, future, modified=NOW - 2 * DAY), facts(1, NOW)], settings) == 0
    assert deletable([facts(0, future, modified=NOW - 2 * DAY - 1), facts(1, NOW)], settings) == 1


def test_records_without_a_timestamp_are_as_old_as_their_file() -> None:
    settings = config(retention_ms=2 * DAY)
    assert deletable([facts(0, NO_TIMESTAMP, modified=NOW - 2 * DAY), facts(1, NOW)], settings) == 0
    assert deletable([facts(0, NO_TIMESTAMP, modified=NOW - 3 * DAY), facts(1, NOW)], settings) == 1


def test_a_clock_that_is_set_back_deletes_nothing_early() -> None:
    settings = config(retention_ms=2 * DAY)
    written_just_now = [facts(0, NOW, modified=NOW), facts(1, NOW, modified=NOW)]
    for set_back in (1, DAY, 1000 * DAY):
        assert deletable(written_just_now, settings, now=NOW - set_back) == 0


def test_a_file_that_was_written_while_the_clock_was_wrong_is_not_asked() -> None:
    assert deletable([facts(0, NOW - DAY), facts(1, NOW)], config(retention_ms=2 * DAY)) == 0


def test_retention_by_size_keeps_at_least_the_limit() -> None:
    segments = [facts(number, NOW, size=100) for number in range(5)]
    for keep, gone in ((500, 0), (401, 0), (400, 1), (300, 2), (299, 2), (100, 4), (0, 5), (-1, 0)):
        assert deletable(segments, config(retention_bytes=keep)) == gone, keep


def test_segments_above_the_high_watermark_are_not_deleted() -> None:
    segments = [facts(number, NOW - 9 * DAY) for number in range(3)]
    settings = config(retention_ms=DAY, retention_bytes=0)
    for high_watermark, gone in ((0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)):
        assert deletable(segments, settings, log_start=30, high_watermark=high_watermark) == gone


def test_segments_below_the_log_start_are_deleted_except_the_active_one() -> None:
    segments = [facts(number, NOW) for number in range(3)]
    for log_start, gone in ((0, 0), (9, 0), (10, 1), (29, 2), (30, 2)):
        assert deletable(segments, config(), log_start=log_start) == gone


def test_compacted_log_deletes_only_segments_below_its_start() -> None:
    segments = [facts(number, NOW - 99 * DAY) for number in range(3)]
    old_and_large = {"retention_ms": 1, "retention_bytes": 0}
    assert deletable(segments, config(cleanup_policy="compact", **old_and_large), log_start=10) == 1
    assert deletable(segments, config(cleanup_policy="compact,delete", **old_and_large)) == 3


def test_an_empty_active_segment_stays() -> None:
    segments = [facts(0, NOW - 9 * DAY), SegmentFacts(10, 0, NO_TIMESTAMP, lambda: 0)]
    assert deletable(segments, config(retention_ms=DAY, retention_bytes=0)) == 1
    assert deletable(segments[1:], config(retention_ms=DAY, retention_bytes=0)) == 0


# --- the log -------------------------------------------------------------------------------------------


def test_the_log_begins_after_the_segments_that_it_lost(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=4 * DAY)
    append(log, NOW, leader_epoch=3)
    whole = read_all(log)
    retired = log.delete_old_segments(NOW, log.log_end_offset)
    assert [segment.base_offset for segment in retired] == [0]
    assert (log.log_start_offset, log.segment_base_offsets) == (3, (3, 6, 9))
    assert log.epochs == ((0, 3), (3, 9))
    assert read_all(log) == whole[PER_SEGMENT * SIZE :]
    assert log.size_bytes == len(read_all(log))
    with pytest.raises(OffsetOutOfRangeError) as caught:
        log.read(2, 100)
    assert (caught.value.first, caught.value.end) == (3, 10)
    assert log.delete_old_segments(NOW, log.log_end_offset) == ()


def test_deletion_of_many_segments_rebuilds_the_list_once(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles())
    log = filled(tmp_path, 15, files, retention_ms=0)
    assert len(log.segments) > 3
    rows: list[object] = []
    files.watch = lambda call, path: rows.append(log.segments) if call == "rename" else None
    log.delete_old_segments(NOW + 1, log.log_end_offset)
    assert len(rows) > 6
    assert all(row is rows[0] for row in rows)
    assert len(log.segments) == 1


def test_an_error_in_the_middle_leaves_the_segments_after_it_in_the_log(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles())
    log = filled(tmp_path, 15, files, retention_ms=0)
    bases = list(log.segment_base_offsets)
    files.fail(Fault.READ_ONLY, log.segments[1].log.path)
    with pytest.raises(StorageError):
        log.delete_old_segments(NOW + 1, bases[-1])
    assert list(log.segment_base_offsets) == bases[2:]


def test_deletion_returns_segments_although_snapshots_cannot_be_listed(tmp_path: Path) -> None:
    files = Unlistable()
    log = filled(tmp_path, files=files, retention_ms=4 * DAY)
    before = set(tmp_path.glob("*.snapshot"))
    files.unlistable = True
    assert [segment.base_offset for segment in log.delete_old_segments(NOW, log.log_end_offset)] == [0]
    assert set(tmp_path.glob("*.snapshot")) == before
    files.unlistable = False
    log.delete_old_segments(NOW + 3 * DAY, log.log_end_offset)
    assert len(set(tmp_path.glob("*.snapshot"))) < len(before)


def test_files_of_deleted_segments_wait_under_another_name(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=4 * DAY)
    retired = log.delete_old_segments(NOW, log.log_end_offset)
    waiting = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(f"{0:020d}."))
    assert waiting == [f"{0:020d}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")]
    for segment in retired:
        segment.delete()
    assert not list(tmp_path.glob("*.deleted"))


def test_open_removes_files_of_deleted_segments(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=4 * DAY)
    log.delete_old_segments(NOW, log.log_end_offset)
    data = read_all(log)
    log.abandon()
    log = open_log(tmp_path, clean=False)
    assert (log.log_start_offset, read_all(log)) == (3, data)
    assert not list(tmp_path.glob("*.deleted"))


def test_log_with_only_old_records_is_emptied_and_keeps_its_end_offset(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=4 * DAY)
    assert len(log.delete_old_segments(NOW + 5 * DAY, log.log_end_offset)) == 3
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (9, 9, 0)
    assert log.delete_old_segments(NOW + 5 * DAY, log.log_end_offset) == ()
    assert append(log, NOW) == 9
    log.abandon()
    assert open_log(tmp_path, clean=False).log_end_offset == 10


def test_unreplicated_records_stay_however_old(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=0)
    assert [segment.base_offset for segment in log.delete_old_segments(NOW + 9 * DAY, 8)] == [0, 3]
    assert log.segment_base_offsets == (6,)


def test_a_log_that_is_too_large_loses_its_oldest_segments(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_bytes=5 * SIZE)
    log.delete_old_segments(NOW, log.log_end_offset)
    assert log.segment_base_offsets == (3, 6)


def test_deleted_records_are_unreadable_and_their_segments_removed(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert log.delete_records(4, high_watermark=8) == 4
    assert [record.offset for record, _ in records_of(log)] == [4, 5, 6, 7, 8]
    assert log.delete_records(2, high_watermark=8) == 4
    assert log.delete_records(-1, high_watermark=8) == 8
    assert [segment.base_offset for segment in log.delete_old_segments(NOW, 8)] == [0, 3]
    for beyond in (9, -2):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.delete_records(beyond, high_watermark=8)
        assert (caught.value.first, caught.value.end) == (8, 8)


def test_sequential_reader_gets_an_error_for_a_deleted_segment(tmp_path: Path) -> None:
    log = filled(tmp_path, retention_ms=4 * DAY)
    log.read(0, SIZE)
    log.delete_old_segments(NOW, log.log_end_offset)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(1, SIZE)
    assert not (tmp_path / f"{0:020d}.log").exists()

"""Events during a round of compaction: the round ends without a result, and nothing is lost or left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.compaction.cleaner import Cleaning, Replacement, plan_cleaning
from storage.log.log import Log
from tests.storage.cleaning import clean, compacted, keyed, put, roll, values_of
from tests.storage.logs import NOW, UnsyncedFiles, read_all
from tidelog.errors import CleaningAbortedError, StorageError, UncleanableLogError
from tidelog.records import read_header


def planned(log: Log) -> Cleaning:
    plan = plan_cleaning(log, 0, NOW, log.log_end_offset)
    assert plan is not None
    return Cleaning(plan, UnsyncedFiles())


def test_a_damaged_batch_makes_the_log_uncleanable_and_changes_nothing(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(3):
        put(log, (b"a", b"value %d" % number))
        roll(log)
    path = log.segments[1].log.path
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    before = read_all(log)
    cleaning = planned(log)
    with pytest.raises(UncleanableLogError, match="byte 0"):
        cleaning.write_next()
    assert not cleaning.overtaken
    assert read_all(log) == before
    assert not list(tmp_path.glob("*.cleaned"))


def test_log_truncated_during_cleaning_refuses_the_cleaned_segment(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(4):
        put(log, (b"a", b"%d" % number))
        roll(log)
    cleaning = planned(log)
    piece = cleaning.write_next()
    assert piece is not None
    log.truncate_to(1)
    with pytest.raises(CleaningAbortedError):
        cleaning.install(piece)
    assert values_of(log) == [(0, b"a", b"0")]
    assert sorted(int(path.stem) for path in tmp_path.glob("*.log")) == [0, 1]
    assert not list(tmp_path.glob("*.cleaned"))
    assert put(log, (b"a", b"new")) == 1


def test_record_stays_if_its_newer_one_is_truncated_meanwhile(tmp_path: Path) -> None:
    """The segments of the plan are unchanged; the truncation affects a later one."""
    log = compacted(tmp_path, segment_bytes=300)
    put(log, (b"a", b"old"))
    roll(log)
    for number in range(4):
        put(log, (b"%d" % number, b"v" * 150))
        roll(log)
    before, end = values_of(log), log.log_end_offset
    put(log, (b"a", b"new"))
    roll(log)
    cleaning = planned(log)
    piece = cleaning.write_next()
    assert piece is not None
    log.truncate_to(end)
    with pytest.raises(CleaningAbortedError):
        cleaning.install(piece)
    assert values_of(log) == before
    assert not list(tmp_path.glob("*.cleaned"))


def test_damaged_offset_does_not_make_compaction_remove_a_newest_record(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(4):
        put(log, (b"other", b"%d" % number))
    roll(log)
    recorded_offset = clean(log)
    put(log, (b"a", b"old"))
    put(log, (b"a", b"new"))
    roll(log)
    path, damaged = log.segments[-2].log.path, bytearray(log.segments[-2].log.path.read_bytes())
    second = read_header(damaged).size_bytes
    assert damaged[second + 7] == 5
    damaged[second + 7] ^= 4  # offset 1, which was compacted before; no CRC covers the offset
    path.write_bytes(damaged)
    with pytest.raises(UncleanableLogError, match="out of order"):
        clean(log, recorded_offset)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(("batch", "damaged_epoch"), [(0, 0), (1, 3)], ids=["first is lowered", "last is raised"])
def test_batch_with_a_damaged_epoch_is_not_copied(tmp_path: Path, batch: int, damaged_epoch: int) -> None:
    log = compacted(tmp_path)
    for key in (b"a", b"b"):
        log.append_as_leader(keyed((key, b"old")), 2, NOW)
    roll(log)
    log.append_as_leader(keyed((b"a", b"new")), 2, NOW)
    roll(log)
    path = log.segments[0].log.path
    damaged = bytearray(path.read_bytes())
    epoch_at = batch * read_header(damaged).size_bytes + 15  # no CRC covers the epoch
    assert damaged[epoch_at] == 2
    damaged[epoch_at] = damaged_epoch
    path.write_bytes(damaged)
    with pytest.raises(UncleanableLogError, match=f"leader epoch {damaged_epoch}"):
        clean(log)
    assert path.read_bytes() == damaged
    assert not list(tmp_path.glob("*.cleaned"))


def test_records_appended_after_a_truncation_are_not_damage_to_a_plan(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"a", b"0"))
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"))
    roll(log)
    cleaning = planned(log)
    log.truncate_to(1)
    put(log, (b"b", b"another"))
    roll(log)
    with pytest.raises(UncleanableLogError):
        cleaning.write_next()
    assert cleaning.overtaken


def test_a_log_that_is_deleted_meanwhile_gets_no_file_back(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    log = compacted(directory)
    for number in range(4):
        put(log, (b"a", b"%d" % number))
        roll(log)
    cleaning = planned(log)
    piece = cleaning.write_next()
    assert piece is not None
    log.abandon()
    directory.rename(tmp_path / "orders-0.deleted")
    assert cleaning.overtaken
    with pytest.raises(CleaningAbortedError):
        cleaning.install(piece)
    assert [path.name for path in tmp_path.iterdir()] == ["orders-0.deleted"]


def test_a_segment_that_is_deleted_meanwhile_does_not_come_back_empty(tmp_path: Path) -> None:
    log = compacted(tmp_path, cleanup_policy="compact,delete", retention_ms=1000, segment_bytes=100)
    for number in range(4):
        put(log, (b"a", b"%d" % number), timestamp=NOW + number * 1000)
        roll(log)
    cleaning = planned(log)
    for segment in log.delete_old_segments(NOW + 2500, log.log_end_offset):
        segment.delete()
    with pytest.raises(StorageError):
        cleaning.write_next()
    assert cleaning.overtaken
    assert sorted(int(path.stem) for path in tmp_path.glob("*.log")) == [
        segment.base_offset for segment in log.segments
    ]


def test_a_round_can_be_ended_from_outside_and_leaves_nothing(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(4):
        put(log, (b"a", b"%d" % number))
        roll(log)
    plan = plan_cleaning(log, 0, NOW, 4)
    assert plan is not None
    moved = []

    def pace(count: int) -> None:
        moved.append(count)
        if len(moved) == 6:
            raise CleaningAbortedError("shutting down")

    cleaning = Cleaning(plan, UnsyncedFiles(), pace=pace)
    with pytest.raises(CleaningAbortedError):
        cleaning.write_next()
    assert sum(moved) == 6 * log.segments[0].size
    assert not list(tmp_path.glob("*.cleaned"))
    assert cleaning.bytes_read == sum(moved)


def test_open_removes_the_cleaned_segment_of_a_closed_log(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"a", b"0"), (b"a", b"1"))
    roll(log)
    cleaning = planned(log)
    piece = cleaning.write_next()
    assert piece is not None and list(tmp_path.glob("*.cleaned"))
    log.close()
    with pytest.raises(CleaningAbortedError):
        cleaning.install(piece)
    assert values_of(compacted(tmp_path)) == [(0, b"a", b"0"), (1, b"a", b"1")]
    assert not list(tmp_path.glob("*.cleaned"))


def test_round_of_a_deleted_log_ignores_a_later_log_of_its_name(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"

    def a_log_of_its_name() -> Log:
        log = compacted(directory)
        put(log, (b"a", b"0"), (b"a", b"1"))
        roll(log)
        return log

    earlier = a_log_of_its_name()
    written, unwritten = planned(earlier), planned(earlier)
    written_piece = written.write_next()
    assert written_piece is not None
    following: list[tuple[Log, Cleaning, Replacement | None]] = []

    def log_is_replaced(moved_bytes: int) -> None:
        if not following:
            earlier.abandon()
            directory.rename(tmp_path / "orders-0.deleted")
            log = a_log_of_its_name()
            cleaning = planned(log)
            following.append((log, cleaning, cleaning.write_next()))
            raise CleaningAbortedError("shutting down")

    under_way = Cleaning(unwritten.plan, UnsyncedFiles(), pace=log_is_replaced)
    for give_up in (under_way.write_next, unwritten.write_next, lambda: written.install(written_piece)):
        with pytest.raises(CleaningAbortedError):
            give_up()
    [(log, cleaning, piece)] = following
    assert piece is not None
    for segment in cleaning.install(piece):
        segment.delete()
    assert values_of(log) == [(1, b"a", b"1")]

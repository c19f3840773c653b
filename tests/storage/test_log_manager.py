"""The logs of a broker: which of them a start finds again, and which are taken out of use."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from storage.configs.log_config import LogConfig
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.directory.directory_checkpoints import Committed
from storage.files import RealFiles
from storage.log.log import Log
from storage.log_manager import LogManager
from storage.log_names import log_name
from tests.storage.logs import UnsyncedFiles, append, read_all, remove_deleted
from tidelog.errors import IneligibleReplicaError, InvalidTopicError, StorageError
from tidelog.model import TopicPartition
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.failing_files import FailingFiles, Fault

ORDERS = TopicPartition("orders", 0)


def open_manager(*paths: Path) -> LogManager:
    return LogManager.open(paths, UnsyncedFiles(), 1, "c1", "boot-1")


def test_logs_are_found_again(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    tps = [TopicPartition("a-b", 3), TopicPartition("a", 10), TopicPartition("a.b_c", 0)]
    for tp in tps:
        append(manager.get_or_create(tp, "id-1", LogConfig()))
    manager.close()
    again = open_manager(tmp_path)
    again.open_logs(lambda topic: LogConfig(max_message_bytes=len(topic)))
    assert set(again.logs()) == set(tps)
    assert all(log.log_end_offset == 1 and log.topic_id == "id-1" for log in again.logs().values())
    assert again.logs()[tps[0]].config.max_message_bytes == 3


def test_logs_of_a_killed_process_are_checked_from_the_recovery_point(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    log = manager.get_or_create(ORDERS, "id", LogConfig(segment_bytes=300))
    for _ in range(20):
        append(log)
    log.flush(rolled_only=True)
    manager.checkpoint_recovery_points()
    data = read_all(log)
    assert 0 < log.recovery_point < 20
    manager.close(clean=False)
    again = open_manager(tmp_path)
    again.open_logs()
    log = again.logs()[ORDERS]
    assert read_all(log) == data
    assert 0 < log.recovered.checked_bytes <= 300


def test_logs_are_closed_side_by_side(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=20)

    class MeetingFiles(UnsyncedFiles):
        def replace(self, path: Path, data: bytes, *, fsync: bool = True) -> None:
            if path.suffix == ".snapshot":
                both.wait()  # breaks if one log waits for the other's disk
            super().replace(path, data, fsync=fsync)

    manager = LogManager.open([tmp_path], MeetingFiles(), 1, "c1", "boot-1")
    for partition in range(2):
        append(manager.get_or_create(TopicPartition("orders", partition), "id", LogConfig()))
    manager.close()
    assert open_manager(tmp_path).directories[0].previous_shutdown.clean


def test_start_stopped_between_two_logs_writes_no_clean_marker(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    for tp in (ORDERS, TopicPartition("orders", 1)):
        append(manager.get_or_create(tp, "id", LogConfig()))
    manager.checkpoint_recovery_points()
    manager.close(clean=False)
    manager = open_manager(tmp_path)

    def config_of(topic: str) -> LogConfig:
        if manager.logs():
            manager.close()
        return LogConfig()

    manager.open_logs(config_of)
    assert list(manager.logs()) == [ORDERS], "a released directory is never opened"
    again = open_manager(tmp_path)
    assert not again.directories[0].previous_shutdown.clean
    again.open_logs()
    assert all(log.recovered.checked_bytes for log in again.logs().values())


def test_clean_marker_is_ignored_without_a_recovery_point(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    log = manager.get_or_create(ORDERS, "id", LogConfig())
    append(log)
    manager.close()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    manager = open_manager(tmp_path)
    manager.open_logs()
    assert manager.directories[0].previous_shutdown.clean
    assert manager.logs()[ORDERS].recovered.checked_bytes == log.size_bytes


def test_log_of_an_earlier_topic_of_the_same_name_is_set_aside(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    append(manager.get_or_create(ORDERS, "old", LogConfig()))
    manager.close()
    manager = open_manager(tmp_path)
    manager.open_logs()
    log = manager.get_or_create(ORDERS, "new", LogConfig())
    assert (log.log_end_offset, log.topic_id) == (0, "new")
    stray = next(path for path in tmp_path.iterdir() if path.name.endswith("-stray"))
    assert (stray / "00000000000000000000.log").stat().st_size > 0
    manager.close()
    manager = open_manager(tmp_path)
    manager.open_logs()
    assert list(manager.logs()) == [ORDERS]


def restarted(path: Path, topic_id: str) -> LogManager:
    manager = open_manager(path)
    manager.open_logs(hosted={ORDERS: topic_id})
    return manager


def written(path: Path, high_watermark: int) -> None:
    """Write a log of three records of the topic "old", closed in order."""
    manager = open_manager(path)
    manager.open_logs(hosted={})
    log = manager.get_or_create(ORDERS, "old", LogConfig())
    for _ in range(3):
        append(log)
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, high_watermark)})
    manager.close()


def test_missing_log_with_committed_records_is_lost(tmp_path: Path) -> None:
    written(tmp_path, high_watermark=3)
    shutil.rmtree(tmp_path / log_name(ORDERS))
    for _ in range(2):  # the next process knows it too
        manager = restarted(tmp_path, "old")
        assert manager.possibly_short, "a broker that lost a log may have lost more"
        with pytest.raises(IneligibleReplicaError):
            manager.get_or_create(ORDERS, "old", LogConfig(), in_sync=True)
        manager.close()
    manager = restarted(tmp_path, "old")
    assert manager.get_or_create(ORDERS, "old", LogConfig()).log_end_offset == 0


@pytest.mark.parametrize("elsewhere", [False, True], ids=["on the same disk", "on another disk"])
def test_log_that_replaces_a_lost_one_inherits_no_high_watermark(tmp_path: Path, elsewhere: bool) -> None:
    """Otherwise new records would count as committed if the broker were killed before its next checkpoint."""
    disks, other = [tmp_path / "a", tmp_path / "b"], TopicPartition("other", 0)

    def started() -> LogManager:
        manager = open_manager(*disks)
        manager.open_logs(hosted={ORDERS: "id", other: "id"})
        return manager

    manager = started()
    log = log_of_five(manager)
    manager.get_or_create(other, "id", LogConfig())
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, 3)})
    manager.close()
    shutil.rmtree(log.directory)
    if elsewhere:
        (disks[1] / log_name(other)).rename(disks[0] / log_name(other))
    manager = started()
    log = log_of_five(manager)
    assert (log.directory.parent == disks[1]) == elsewhere
    manager.clear_possibly_short()
    manager.close(clean=False)
    manager = started()
    assert manager.logs()[ORDERS].log_end_offset == 5
    assert manager.high_watermarks().get(ORDERS, 0) == 0 and not manager.possibly_short


def test_missing_log_of_an_unreadable_topic_is_not_created_in_sync(tmp_path: Path) -> None:
    written(tmp_path, high_watermark=3)
    shutil.rmtree(tmp_path / log_name(ORDERS))
    manager = open_manager(tmp_path)
    manager.open_logs(hosted={}, unreadable_topics={ORDERS.topic})
    with pytest.raises(
        IneligibleReplicaError, match="when this broker started, the assignment of the topic was unknown"
    ):
        manager.get_or_create(ORDERS, "old", LogConfig(), in_sync=True)
    assert manager.get_or_create(ORDERS._replace(partition=9), "old", LogConfig(), in_sync=True).log_end_offset == 0
    assert manager.get_or_create(ORDERS, "old", LogConfig()).log_end_offset == 0


def test_missing_log_without_committed_records_is_created_again(tmp_path: Path) -> None:
    written(tmp_path, high_watermark=0)
    shutil.rmtree(tmp_path / log_name(ORDERS))
    manager = restarted(tmp_path, "old")
    assert not manager.possibly_short
    assert manager.get_or_create(ORDERS, "old", LogConfig(), in_sync=True).log_end_offset == 0


def test_log_that_ends_below_its_high_watermark_is_possibly_short(tmp_path: Path) -> None:
    written(tmp_path, high_watermark=4)
    assert restarted(tmp_path, "old").possibly_short


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "closed in order"])
def test_truncation_at_damage_is_possibly_short_above_the_high_watermark(tmp_path: Path, clean: bool) -> None:
    """Only this check notices the loss of records acknowledged after the last checkpoint."""
    manager = open_manager(tmp_path)
    manager.open_logs(hosted={})
    log = manager.get_or_create(ORDERS, "old", LogConfig())
    for _ in range(3):
        append(log)
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, 1)})
    manager.close(clean)
    (segment,) = (tmp_path / log_name(ORDERS)).glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-1])  # the last batch is incomplete
    for end_of_life in ("killed", "closed in order"):
        manager = restarted(tmp_path, "old")
        assert manager.logs()[ORDERS].log_end_offset == 2
        assert manager.possibly_short
        assert not manager.directories[0].previous_shutdown.flush_had_failed
        manager.close(clean=end_of_life == "closed in order")
    manager = restarted(tmp_path, "old")
    manager.clear_possibly_short()
    manager.close(clean=False)
    assert not restarted(tmp_path, "old").possibly_short


def test_missing_last_segments_make_the_directory_possibly_short(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.open_logs(hosted={})
    log = manager.get_or_create(ORDERS, "old", LogConfig(segment_bytes=300))
    for _ in range(9):
        append(log)
    manager.close()
    newest = max((tmp_path / log_name(ORDERS)).glob("*.log"))
    newest.unlink()
    assert restarted(tmp_path, "old").possibly_short


def test_committed_records_of_an_earlier_topic_are_not_lost_ones(tmp_path: Path) -> None:
    written(tmp_path, high_watermark=3)
    manager = restarted(tmp_path, "new")
    assert not manager.possibly_short
    assert manager.get_or_create(ORDERS, "new", LogConfig(), in_sync=True).log_end_offset == 0


def test_a_new_log_inherits_nothing_from_a_deleted_one_of_its_name(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    log = manager.get_or_create(ORDERS, "old", LogConfig())
    for _ in range(5):
        append(log)
    log.raise_log_start(3)
    log.flush()
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, 5)})
    reported = manager.directories[0].checkpoints.high_watermarks()
    manager.delete(ORDERS)
    assert reported == {ORDERS: 5}, "another thread reads the old value"
    append(manager.get_or_create(ORDERS, "new", LogConfig()))
    manager.close(clean=False)
    manager = open_manager(tmp_path)
    manager.open_logs()
    log = manager.logs()[ORDERS]
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 1, 0)
    assert log.recovered.checked_bytes == log.size_bytes
    assert not manager.high_watermarks()
    assert not manager.possibly_short, "nothing is missing of the new one"


def test_late_high_watermark_is_dropped_for_a_later_log_of_the_name(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    log = manager.get_or_create(ORDERS, "old", LogConfig())
    append(log)
    manager.delete(ORDERS)
    append(manager.get_or_create(ORDERS, "new", LogConfig()))
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, 5)})
    assert not manager.high_watermarks()
    manager.close()
    assert not restarted(tmp_path, "new").possibly_short


def log_of_five(manager: LogManager) -> Log:
    """Write a log that ends at offset 5."""
    log = manager.get_or_create(ORDERS, "id", LogConfig())
    for _ in range(5):
        append(log)
    return log


def test_truncation_lowers_the_checkpointed_high_watermark(tmp_path: Path) -> None:
    """Otherwise records appended after the truncation would count as committed once they reach the old offset."""
    manager = open_manager(tmp_path)
    log = log_of_five(manager)
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, 4)})
    log.truncate_to(2)
    for _ in range(5):
        append(log)
    manager.close(clean=False)
    manager = open_manager(tmp_path)
    manager.open_logs()
    assert manager.logs()[ORDERS].log_end_offset == 7
    assert manager.high_watermarks() == {ORDERS: 2}


def test_late_high_watermark_is_dropped_after_a_truncation(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    log = log_of_five(manager)
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, 3)})
    taken_down = {ORDERS: Committed.of(log, 4)}
    log.truncate_fully_and_start_at(2)
    for _ in range(5):
        append(log)
    manager.checkpoint_high_watermarks(taken_down)
    assert manager.high_watermarks() == {ORDERS: 2}
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, 5)})
    assert manager.high_watermarks() == {ORDERS: 5}
    manager.close()


def test_high_watermark_is_lowered_once_the_lost_end_is_given_up(tmp_path: Path) -> None:
    """Also if an older value is written once more, late."""
    manager = open_manager(tmp_path)
    log = log_of_five(manager)
    taken_down = {ORDERS: Committed.of(log, 8)}
    manager.checkpoint_high_watermarks(taken_down)
    log.lower_checkpoints_to_end()
    assert manager.high_watermarks() == {ORDERS: 5}
    for _ in range(5):
        append(log)
    manager.checkpoint_high_watermarks(taken_down)
    manager.close(clean=False)
    manager = open_manager(tmp_path)
    manager.open_logs()
    assert manager.logs()[ORDERS].log_end_offset == 10
    assert manager.high_watermarks() == {ORDERS: 5}


def test_lost_log_end_stays_recorded_until_the_cluster_clears_it(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    log = log_of_five(manager)
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, 8)})
    manager.close(clean=False)
    manager = restarted(tmp_path, "id")
    assert manager.possibly_short
    manager.logs()[ORDERS].lower_checkpoints_to_end()
    manager.close(clean=False)
    manager = restarted(tmp_path, "id")
    assert manager.possibly_short
    manager.clear_possibly_short()
    manager.close(clean=False)
    assert not restarted(tmp_path, "id").possibly_short


def test_truncation_fails_if_the_high_watermark_cannot_be_lowered() -> None:
    files = FailingFiles(CrashableFiles())
    manager = LogManager.open([Path("/data")], files, 1, "c1", "boot-1")
    log = log_of_five(manager)
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, 4)})
    files.fail(Fault.FULL)
    with pytest.raises(StorageError):
        log.truncate_to(2)
    assert log.log_end_offset == 5
    assert manager.high_watermarks() == {ORDERS: 4}


def test_deleted_topic_is_not_lost_before_the_next_of_its_name_has_a_log(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.open_logs(hosted={})
    log = manager.get_or_create(ORDERS, "old", LogConfig())
    append(log)
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, 1)})
    manager.delete(ORDERS)
    manager.close(clean=False)
    manager = restarted(tmp_path, "new")
    assert manager.get_or_create(ORDERS, "new", LogConfig(), in_sync=True).log_end_offset == 0


def test_log_start_equal_to_that_of_an_earlier_log_is_written(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    for topic_id in ("old", "new"):
        log = manager.get_or_create(ORDERS, topic_id, LogConfig())
        for _ in range(5):
            append(log)
        log.raise_log_start(3)
        if topic_id == "old":
            manager.checkpoint_log_starts()
            manager.delete(ORDERS)
    manager.close()
    manager = open_manager(tmp_path)
    manager.open_logs()
    assert manager.logs()[ORDERS].log_start_offset == 3


def test_stray_log_is_put_back_when_the_replica_is_in_the_isr(
    tmp_path: Path,
) -> None:
    written(tmp_path, high_watermark=3)
    manager = open_manager(tmp_path)
    manager.open_logs(hosted={})
    manager.checkpoint_high_watermarks({})
    assert not manager.logs()
    manager.close()
    manager = restarted(tmp_path, "old")
    assert manager.get_or_create(ORDERS, "old", LogConfig(), in_sync=True).log_end_offset == 3
    manager.set_aside(ORDERS)  # while the broker runs, too
    assert manager.get_or_create(ORDERS, "old", LogConfig(), in_sync=True).log_end_offset == 3
    manager.set_aside(ORDERS)
    assert manager.get_or_create(ORDERS, "new", LogConfig(), in_sync=True).log_end_offset == 0, "another topic's"


def test_stray_log_with_a_shortened_name_is_put_back(tmp_path: Path) -> None:
    mine, other = TopicPartition("t" * 248 + "1", 0), TopicPartition("t" * 248 + "2", 0)
    manager = open_manager(tmp_path)
    for tp in (mine, other):
        append(manager.get_or_create(tp, f"id{tp.topic[-1]}", LogConfig()))
    manager.set_aside(mine)  # while the broker runs
    assert manager.get_or_create(mine, "id1", LogConfig(), in_sync=True).log_end_offset == 1
    manager.close()
    manager = open_manager(tmp_path)
    manager.open_logs(hosted={})  # at a start
    manager.close()
    manager = open_manager(tmp_path)
    manager.open_logs()
    assert not manager.logs()
    append(manager.get_or_create(mine, "id1", LogConfig(), in_sync=True))
    assert manager.get_or_create(other, "id2", LogConfig(), in_sync=True).log_end_offset == 1
    assert manager.logs()[mine].log_end_offset == 2


def test_two_stray_logs_of_a_partition_are_refused(tmp_path: Path) -> None:
    written(tmp_path, high_watermark=3)
    manager = restarted(tmp_path, "old")
    manager.set_aside(ORDERS)
    manager.get_or_create(ORDERS, "old", LogConfig())  # the replica is not in the ISR
    manager.set_aside(ORDERS)
    with pytest.raises(IneligibleReplicaError, match="several logs"):
        manager.get_or_create(ORDERS, "old", LogConfig(), in_sync=True)
    assert manager.get_or_create(ORDERS, "old", LogConfig()).log_end_offset == 0


def test_deletion_of_a_log_during_its_flush_fails_no_directory(tmp_path: Path) -> None:
    manager = LogManager.open([tmp_path], RealFiles(), 1, "c1", None)
    log = manager.get_or_create(ORDERS, "id", LogConfig())
    append(log)
    manager.delete(ORDERS)
    log.flush()
    remove_deleted(manager)
    assert list(tmp_path.glob("orders*")) == []


def test_a_topic_of_many_partitions_is_forgotten_with_one_write(tmp_path: Path) -> None:
    class CountingFiles(UnsyncedFiles):
        written: ClassVar[list[str]] = []

        def replace(self, path: Path, data: bytes, *, fsync: bool = True) -> None:
            self.written.append(path.name)
            super().replace(path, data, fsync=fsync)

    manager = LogManager.open([tmp_path], CountingFiles(), 1, "c", "boot")
    tps = [TopicPartition("orders", partition) for partition in range(5)]
    for tp in [*tps, TopicPartition("kept", 0)]:
        append(manager.get_or_create(tp, "id", LogConfig()))
    manager.checkpoint_recovery_points()
    CountingFiles.written.clear()
    manager.delete(*tps)
    remove_deleted(manager)
    assert CountingFiles.written == ["recovery-point-offset-checkpoint"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["kept-0"]
    assert "orders" not in (tmp_path / "recovery-point-offset-checkpoint").read_text()


def test_a_deletion_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.get_or_create(ORDERS, "id", LogConfig())
    manager.get_or_create(TopicPartition("orders", 1), "id", LogConfig())
    manager.delete(ORDERS)
    deleted, kept = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert kept == "orders-1" and deleted.startswith("orders-0.") and deleted.endswith("-delete")
    manager.close(clean=False)
    manager = open_manager(tmp_path)
    manager.open_logs()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["orders-1"]


def test_a_name_is_as_long_as_a_file_system_takes_it_and_no_longer() -> None:
    assert len(log_name(TopicPartition("t" * 249, 12345))) == 255
    with pytest.raises(InvalidTopicError):
        log_name(TopicPartition("t" * 249, 123456))


def test_a_long_topic_name_can_be_deleted(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    tp = TopicPartition("t" * 249, 0)
    manager.get_or_create(tp, "id", LogConfig())
    manager.delete(tp)
    assert manager.logs() == {}


@pytest.mark.parametrize("topic", ["../x", "..", ".", "", "a/b", "a\0b", "t" * 250, "ü"])
def test_no_name_leads_out_of_the_directory(tmp_path: Path, topic: str) -> None:
    manager = open_manager(tmp_path / "data")
    for call in (
        lambda tp: manager.get_or_create(tp, "id", LogConfig()),
        manager.delete,
        manager.set_aside,
    ):
        with pytest.raises(InvalidTopicError):
            call(TopicPartition(topic, 0))
    with pytest.raises(InvalidTopicError):
        manager.get_or_create(TopicPartition("a", -1), "id", LogConfig())
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_trimmed_log_stays_trimmed(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    log = manager.get_or_create(ORDERS, "id", LogConfig())
    for _ in range(5):
        append(log)
    log.raise_log_start(3)
    manager.close()
    again = open_manager(tmp_path)
    again.open_logs()
    assert again.logs()[ORDERS].log_start_offset == 3


def test_a_truncation_lowers_the_recovery_point_on_the_disk_first(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    log = manager.get_or_create(ORDERS, "id", LogConfig())
    for _ in range(5):
        append(log)
    manager.close()
    manager = open_manager(tmp_path)
    manager.open_logs()
    manager.logs()[ORDERS].truncate_to(2)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"


CHECKPOINTS = ("recovery-point-offset", "log-start-offset", "replication-offset", "cleaner-offset")
ONE_LINE = "0\n1\norders 0 {}\n"
NO_CHECKPOINTS = ("", "0\n", "1\n1\norders 0 3\n", "0\n2\norders 0 3\n", ONE_LINE.format(-3), "\xff\x00", "\0" * 99)


@pytest.mark.parametrize("text", [ONE_LINE.format(999), *NO_CHECKPOINTS])
@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("clean", [True, False])
def test_a_checkpoint_that_is_damaged_or_from_the_future_costs_no_record(
    tmp_path: Path, name: str, text: str, clean: bool
) -> None:
    manager = open_manager(tmp_path)
    log = manager.get_or_create(ORDERS, "id", LogConfig(segment_bytes=300))
    for _ in range(20):
        append(log)
    data = read_all(log)
    manager.close(clean)
    (tmp_path / f"{name}-checkpoint").write_bytes(text.encode("latin-1"))
    for _ in range(2):
        manager = open_manager(tmp_path)
        manager.open_logs()
        log = manager.logs()[ORDERS]
        assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (0, 20, data)
        assert log.recovery_point <= 20
        assert manager.cleaner_offset(ORDERS) == 0
        assert manager.directories[0].checkpoints.cleaner_offset(ORDERS) <= 20
        manager.close(clean)


def test_recovery_point_past_the_log_end_is_ignored(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    log = manager.get_or_create(ORDERS, "id", LogConfig(segment_bytes=300))
    for _ in range(20):
        append(log)
    manager.close(clean=False)
    first = tmp_path / "orders-0" / f"{0:020d}.log"
    damaged = bytearray(first.read_bytes())
    damaged[-1] ^= 1
    first.write_bytes(damaged)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 21\n")
    manager = open_manager(tmp_path)
    manager.open_logs()
    assert manager.logs()[ORDERS].log_end_offset < 5, "no record that is damaged, and none after it"
    manager.close(clean=False)
    assert "orders 0 21" not in (tmp_path / "recovery-point-offset-checkpoint").read_text()


def test_new_log_takes_few_calls_of_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of ten thousand partitions makes as many logs on each broker."""
    manager = LogManager.open([tmp_path], RealFiles(), 1, "c1", None)
    calls: Counter[str] = Counter()
    for name in ("listdir", "replace", "open", "mkdir"):
        monkeypatch.setattr(os, name, counted(getattr(os, name), partial(calls.update, [name])))
    manager.get_or_create(TopicPartition("t", 0), "AAAAAAAAAAAAAAAAAAAAAQ", LogConfig())
    monkeypatch.undo()
    assert calls == {"mkdir": 1, "listdir": 2, "open": 4, "replace": 1}, "segment, both indexes, and the topic's id"


def counted(call: Callable[..., Any], count: Callable[[], object]) -> Callable[..., Any]:
    def counting(*arguments: Any, **options: Any) -> Any:
        count()
        return call(*arguments, **options)

    return counting


def test_high_watermarks_that_could_not_be_written_are_written_later(tmp_path: Path) -> None:
    """A caller passes each change once."""
    files = FilesWithoutDescriptors()
    manager = LogManager.open([tmp_path], files, 1, "c", "boot")
    manager.open_logs()
    log = log_of_five(manager)
    files.refuses = True
    manager.checkpoint_high_watermarks({ORDERS: Committed.of(log, 3)})
    assert manager.high_watermarks() == {} and not manager.failed()
    files.refuses = False
    manager.checkpoint_high_watermarks({})
    assert manager.high_watermarks() == {ORDERS: 3}
    manager.close()


class FilesWithoutDescriptors(UnsyncedFiles):
    """Files that cannot be replaced while `refuses` is true."""

    refuses = False

    def replace(self, path: Path, data: bytes, *, fsync: bool = True) -> None:
        if self.refuses:
            raise OutOfDescriptorsError("none is left")
        super().replace(path, data, fsync=fsync)

"""One data directory: whose it is, what it holds, and what of it can be trusted after a start."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from storage.config import LogConfig
from storage.files import RealFiles
from storage.log_directory import LogDirectory
from tests.storage.logs import UnsyncedFiles, append, read_all
from tidelog.errors import DataDirectoryError, InvalidTopicError
from tidelog.model import TopicPartition

ORDERS = TopicPartition("orders", 0)


def open_directory(path: Path, broker_id: int = 1, cluster: str = "c1", boot_id: str | None = "boot-1") -> LogDirectory:
    return LogDirectory.open(path, UnsyncedFiles(), broker_id, cluster, boot_id)


def test_logs_are_found_again(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    tps = [TopicPartition("a-b", 3), TopicPartition("a", 10), TopicPartition("a.b_c", 0)]
    for tp in tps:
        append(directory.get_or_create(tp, "id-1", LogConfig()))
    directory.close()
    again = open_directory(tmp_path)
    progress: list[tuple[int, int]] = []
    again.open_logs(
        lambda topic: LogConfig(max_message_bytes=len(topic)), lambda done, all_: progress.append((done, all_))
    )
    assert set(again.logs()) == set(tps)
    assert all(log.log_end_offset == 1 and log.topic_id == "id-1" for log in again.logs().values())
    assert again.logs()[tps[0]].config.max_message_bytes == 3
    assert progress == [(1, 3), (2, 3), (3, 3)]


def test_a_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    with pytest.raises(DataDirectoryError, match=f"{tmp_path} is in use by another process"):
        open_directory(tmp_path)
    code = (
        "import sys; from pathlib import Path; from storage.files import RealFiles\n"
        "sys.exit(0 if RealFiles().try_lock(Path(sys.argv[1])) is None else 1)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code, str(tmp_path / ".lock")], check=False, timeout=30).returncode == 0
    )
    directory.close()
    open_directory(tmp_path).close()


def test_a_directory_of_another_broker_or_cluster_is_refused_and_left_alone(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    assert (tmp_path / "meta.properties").read_text() == "version=0\nbroker.id=1\ncluster.id=c1\n"
    with pytest.raises(DataDirectoryError, match=r"broker\.id=1, not 2"):
        open_directory(tmp_path, broker_id=2)
    with pytest.raises(DataDirectoryError, match=r"cluster\.id=c1, not c2"):
        open_directory(tmp_path, cluster="c2")
    assert open_directory(tmp_path).clean


def test_logs_without_an_owner_are_refused(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(DataDirectoryError, match=r"meta\.properties"):
        open_directory(tmp_path)


@pytest.mark.parametrize(
    ("clean", "boot_before", "boot_now", "short"),
    [
        (True, "boot-1", "boot-2", False),  # closed in order: all is synced
        (False, "boot-1", "boot-1", False),  # only the process ended: the page cache is still there
        (False, "boot-1", "boot-2", True),
        (False, "boot-1", None, True),
        (False, None, "boot-1", True),
        (False, None, None, True),
    ],
)
def test_only_a_machine_that_went_down_unclean_may_have_lost_its_tail(
    tmp_path: Path, clean: bool, boot_before: str | None, boot_now: str | None, short: bool
) -> None:
    open_directory(tmp_path, boot_id=boot_before).close(clean=clean)
    directory = open_directory(tmp_path, boot_id=boot_now)
    assert directory.possibly_short is short
    assert directory.clean is clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_killed_process_leaves_logs_that_are_checked_from_the_recovery_point(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.get_or_create(ORDERS, "id", LogConfig(segment_bytes=300))
    for _ in range(20):
        append(log)
    directory.checkpoint_recovery_points()
    data = read_all(log)
    assert 0 < log.recovery_point < 20
    directory.close(clean=False)
    again = open_directory(tmp_path)
    again.open_logs()
    log = again.logs()[ORDERS]
    assert read_all(log) == data
    assert 0 < log.recovered.checked_bytes <= 300


def test_logs_are_closed_side_by_side(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=20)

    class MeetingFiles(UnsyncedFiles):
        def replace(self, path: Path, data: bytes, *, sync: bool = True) -> None:
            if path.suffix == ".snapshot":
                both.wait()  # breaks where one log waits for the other's disk
            super().replace(path, data, sync=sync)

    directory = LogDirectory.open(tmp_path, MeetingFiles(), 1, "c1", "boot-1")
    for partition in range(2):
        append(directory.get_or_create(TopicPartition("orders", partition), "id", LogConfig()))
    directory.close()
    assert open_directory(tmp_path).clean


def test_a_start_that_is_stopped_between_two_logs_vouches_for_neither(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    for tp in (ORDERS, TopicPartition("orders", 1)):
        append(directory.get_or_create(tp, "id", LogConfig()))
    directory.checkpoint_recovery_points()
    directory.close(clean=False)
    directory = open_directory(tmp_path)
    directory.open_logs(progress=lambda done, all_: directory.close())
    assert list(directory.logs()) == [ORDERS], "nothing is opened that somebody else may own by now"
    again = open_directory(tmp_path)
    assert not again.clean
    again.open_logs()
    assert all(log.recovered.checked_bytes for log in again.logs().values())


def test_without_a_recovery_point_a_clean_end_is_not_believed(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.get_or_create(ORDERS, "id", LogConfig())
    append(log)
    directory.close()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    directory = open_directory(tmp_path)
    directory.open_logs()
    assert directory.clean
    assert directory.logs()[ORDERS].recovered.checked_bytes == log.size_bytes


def test_a_log_of_an_earlier_topic_of_the_same_name_is_set_aside_and_never_read(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    append(directory.get_or_create(ORDERS, "old", LogConfig()))
    directory.close()
    directory = open_directory(tmp_path)
    directory.open_logs()
    log = directory.get_or_create(ORDERS, "new", LogConfig())
    assert (log.log_end_offset, log.topic_id) == (0, "new")
    stray = next(path for path in tmp_path.iterdir() if path.name.endswith("-stray"))
    assert (stray / "00000000000000000000.log").stat().st_size > 0
    directory.close()
    directory = open_directory(tmp_path)
    directory.open_logs()
    assert list(directory.logs()) == [ORDERS]


def test_a_new_log_inherits_nothing_from_a_deleted_one_of_its_name(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.get_or_create(ORDERS, "old", LogConfig())
    for _ in range(5):
        append(log)
    log.raise_log_start(3)
    log.flush()
    directory.checkpoint_recovery_points()
    directory.delete(ORDERS)
    append(directory.get_or_create(ORDERS, "new", LogConfig()))
    directory.close(clean=False)
    directory = open_directory(tmp_path)
    directory.open_logs()
    log = directory.logs()[ORDERS]
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 1, 0)
    assert log.recovered.checked_bytes == log.size_bytes


def test_a_log_that_is_deleted_while_it_is_synced_does_not_fail_the_disk(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, RealFiles(), 1, "c1", None)
    log = directory.get_or_create(ORDERS, "id", LogConfig())
    append(log)
    directory.delete(ORDERS)
    log.flush()
    assert list(tmp_path.glob("orders*")) == []


def test_a_topic_of_many_partitions_is_forgotten_with_one_write(tmp_path: Path) -> None:
    class CountingFiles(UnsyncedFiles):
        written: ClassVar[list[str]] = []

        def replace(self, path: Path, data: bytes, *, sync: bool = True) -> None:
            self.written.append(path.name)
            super().replace(path, data, sync=sync)

    directory = LogDirectory.open(tmp_path, CountingFiles(), 1, "c", "boot")
    tps = [TopicPartition("orders", partition) for partition in range(5)]
    for tp in [*tps, TopicPartition("kept", 0)]:
        append(directory.get_or_create(tp, "id", LogConfig()))
    directory.checkpoint_recovery_points()
    CountingFiles.written.clear()
    directory.delete(*tps)
    assert CountingFiles.written == ["recovery-point-offset-checkpoint"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["kept-0"]
    assert "orders" not in (tmp_path / "recovery-point-offset-checkpoint").read_text()


def test_a_deletion_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.get_or_create(ORDERS, "id", LogConfig())
    directory.get_or_create(TopicPartition("orders", 1), "id", LogConfig())
    directory.delete(ORDERS)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["orders-1"]
    directory.close()
    (tmp_path / "orders-1").rename(tmp_path / "orders-1.0123-delete")
    directory = open_directory(tmp_path)
    directory.open_logs()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_long_topic_name_can_be_deleted(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    tp = TopicPartition("t" * 249, 0)
    directory.get_or_create(tp, "id", LogConfig())
    directory.delete(tp)
    assert directory.logs() == {}


@pytest.mark.parametrize("topic", ["../x", "..", ".", "", "a/b", "a\0b", "t" * 250, "ü"])
def test_no_name_leads_out_of_the_directory(tmp_path: Path, topic: str) -> None:
    directory = open_directory(tmp_path / "data")
    for call in (
        lambda tp: directory.get_or_create(tp, "id", LogConfig()),
        directory.delete,
        directory.set_aside,
    ):
        with pytest.raises(InvalidTopicError):
            call(TopicPartition(topic, 0))
    with pytest.raises(InvalidTopicError):
        directory.get_or_create(TopicPartition("a", -1), "id", LogConfig())
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_high_watermarks_and_the_session_survive(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    assert directory.high_watermarks() == {}
    assert directory.read_session() is None
    directory.checkpoint_high_watermarks({ORDERS: 12})
    directory.write_session("0x1000 secret")
    directory.close(clean=False)
    again = open_directory(tmp_path)
    assert again.high_watermarks() == {ORDERS: 12}
    assert again.read_session() == "0x1000 secret"


def test_a_trimmed_log_stays_trimmed(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.get_or_create(ORDERS, "id", LogConfig())
    for _ in range(5):
        append(log)
    log.raise_log_start(3)
    directory.close()
    again = open_directory(tmp_path)
    again.open_logs()
    assert again.logs()[ORDERS].log_start_offset == 3


def test_a_truncation_lowers_the_recovery_point_on_the_disk_first(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.get_or_create(ORDERS, "id", LogConfig())
    for _ in range(5):
        append(log)
    directory.close()
    directory = open_directory(tmp_path)
    directory.open_logs()
    directory.logs()[ORDERS].truncate_to(2)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"

"""One log directory: its owner, its contents, and the parts that a start may trust."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, read_offsets
from storage.directory.directory_checkpoints import Committed
from storage.directory.log_directory import LogDirectory
from storage.files import RealFiles
from tests.storage.logs import NOW, UnsyncedFiles, append, batch, config, read_all
from tidelog.errors import DataDirectoryError, StorageError
from tidelog.model import TopicPartition
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.failing_files import FailingFiles, Fault
from verify.simulation.disks.page_cache import FORGOTTEN

ORDERS = TopicPartition("orders", 0)


def open_directory(path: Path, broker_id: int = 1, cluster: str = "c1", boot_id: str | None = "boot-1") -> LogDirectory:
    return LogDirectory.open(path, UnsyncedFiles(), broker_id, cluster, boot_id)


def test_second_process_is_refused_while_the_directory_is_locked(tmp_path: Path) -> None:
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


def test_no_call_that_is_made_again_and_again_uses_up_descriptors(tmp_path: Path) -> None:
    files = RealFiles()
    held = files.try_lock(tmp_path / ".lock")
    assert held is not None
    file = files.open(tmp_path / "file")
    file.write(0, (b"x",))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert files.try_lock(tmp_path / ".lock") is None
        file.fsync()
        files.fsync_directory(tmp_path)
        files.replace(tmp_path / "replaced", b"y")
    assert len(os.listdir("/proc/self/fd")) == before
    file.close()
    held.release()
    assert len(os.listdir("/proc/self/fd")) == before - 2


def test_old_log_start_is_dropped_by_a_log_that_restarts_below_it(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.open_log(ORDERS, config())
    for _ in range(10):
        append(log)
    log.raise_log_start(8)
    directory.checkpoints.write_log_starts()
    log.truncate_fully_and_start_at(5)
    for _ in range(10):
        append(log)
    log.flush()
    directory.close(clean=False)
    assert open_directory(tmp_path).open_log(ORDERS, config()).log_start_offset == 5


@pytest.mark.parametrize("offset", [5, 3])
def test_checkpoint_written_during_a_truncation_is_lowered(offset: int) -> None:
    files, path = CrashableFiles(), Path("/data")
    directory = LogDirectory.open(path, files, 1, "c1", "boot-1")
    log = directory.open_log(ORDERS, config(segment_bytes=300))
    for _ in range(20):
        append(log)
    log.flush()
    log.raise_log_start(4)
    recorded = 0

    def note() -> None:
        nonlocal recorded
        files.boundary = lambda: None  # these writes have boundaries too
        if files.mutations[-1].startswith("remove"):
            log.flush(rolled_only=True)
            directory.checkpoints.write_recovery_points()
            directory.checkpoints.write_log_starts()
            recorded = max(recorded, read_offsets(files, path / RECOVERY_POINTS)[ORDERS])
        files.boundary = note

    files.boundary = note
    log.truncate_to(offset)
    files.boundary = lambda: None
    assert recorded > offset
    left = files.crash(FORGOTTEN)
    assert read_offsets(left, path / RECOVERY_POINTS)[ORDERS] <= offset
    assert read_offsets(left, path / LOG_STARTS).get(ORDERS, 0) <= log.log_start_offset


@pytest.mark.parametrize("closed", [True, False])
def test_deleted_records_stay_deleted_after_segment_removal(closed: bool) -> None:
    files, path = CrashableFiles(), Path("/data")
    directory = LogDirectory.open(path, files, 1, "c1", "boot-1")
    log = directory.open_log(ORDERS, config(segment_bytes=300))
    for _ in range(20):
        append(log)
    log.roll(NOW)  # so that the name of a segment shows the log start
    log.flush()
    log.delete_records(20, 20)
    directory.checkpoints.write_log_starts()
    assert log.delete_old_segments(NOW, 20)
    if closed:
        directory.close()
    else:
        directory.checkpoints.write_log_starts()
    again = LogDirectory.open(path, files.crash(FORGOTTEN), 1, "c1", "boot-2").open_log(ORDERS, config())
    assert (again.log_start_offset, again.log_end_offset) == (20, 20)


def test_log_start_is_checkpointed_until_the_segment_name_is_flushed(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.open_log(ORDERS, config())
    append(log)
    log.roll(NOW)
    append(log)
    log.delete_records(1, 2)
    assert log.delete_old_segments(NOW, 2)
    for recorded in ({ORDERS: 1}, {}):
        directory.checkpoints.write_log_starts()
        assert read_offsets(RealFiles(), tmp_path / LOG_STARTS) == recorded
        log.flush()


def test_ignored_log_start_is_removed_from_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 8\n")
    for _ in range(3):
        directory = open_directory(tmp_path)
        log = directory.open_log(ORDERS, config())
        assert log.log_start_offset == 0
        for _ in range(5):
            append(log)
        log.flush()
        directory.close(clean=False)


def test_directory_of_another_broker_or_cluster_is_refused_unchanged(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    assert (tmp_path / "meta.properties").read_text() == "version=0\nbroker.id=1\ncluster.id=c1\n"
    with pytest.raises(DataDirectoryError, match=r"broker\.id=1 instead of 2"):
        open_directory(tmp_path, broker_id=2)
    with pytest.raises(DataDirectoryError, match=r"cluster\.id=c1 instead of c2"):
        open_directory(tmp_path, cluster="c2")
    assert open_directory(tmp_path).previous_shutdown.clean


def test_logs_without_an_owner_are_refused(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(DataDirectoryError, match=r"meta\.properties"):
        open_directory(tmp_path)


@pytest.mark.parametrize(
    ("clean", "boot_before", "boot_now", "short"),
    [
        (True, "boot-1", "boot-2", False),  # closed in order: everything is flushed
        (False, "boot-1", "boot-1", False),  # only the process ended: the page cache survived
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
    assert directory.data_loss_marker.possibly_short is short
    assert directory.previous_shutdown.clean is clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_high_watermarks_and_the_session_survive(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    assert directory.checkpoints.high_watermarks() == {}
    assert directory.read_session() is None
    log = directory.open_log(ORDERS, config())
    directory.checkpoints.write_high_watermarks(
        {ORDERS: Committed.of(log, 12), TopicPartition("elsewhere", 0): Committed.of(log, 7)}
    )
    directory.write_session("0x1000 secret")
    directory.close(clean=False)
    again = open_directory(tmp_path)
    assert again.checkpoints.high_watermarks() == {ORDERS: 12}
    assert again.read_session() == "0x1000 secret"


def test_new_directory_is_flushed_with_its_new_parents() -> None:
    files = CrashableFiles()
    path = Path("/new/broker-1/data")
    LogDirectory.open(path, files, 1, "c1", "boot-1")
    files = files.crash(FORGOTTEN)
    assert "meta.properties" in files.names(path)
    assert LogDirectory.open(path, files, 1, "c1", "boot-2").data_loss_marker.possibly_short


def test_unchanged_checkpoint_is_not_written_again(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.open_log(ORDERS, config())
    path = tmp_path / HIGH_WATERMARKS

    def is_written(offset: int) -> bool:
        before = path.stat().st_ino if path.exists() else 0  # each write creates a new file
        directory.checkpoints.write_high_watermarks({ORDERS: Committed.of(log, offset)})
        return path.stat().st_ino != before

    assert [is_written(offset) for offset in (12, 12, 13, 13, 12)] == [True, False, True, False, True]
    directory.close(clean=False)
    assert open_directory(tmp_path).checkpoints.high_watermarks() == {ORDERS: 12}


def test_directory_stays_possibly_short_until_the_cluster_clears_it(tmp_path: Path) -> None:
    open_directory(tmp_path, boot_id="boot-1").close(clean=False)
    for clean in (False, True, False):
        unclean = open_directory(tmp_path, boot_id="boot-2")
        assert unclean.data_loss_marker.possibly_short, "the process may end before the cluster has dealt with the loss"
        unclean.close(clean)
    for clean in (False, True):
        unclean = open_directory(tmp_path, boot_id="boot-2")
        unclean.data_loss_marker.clear_possibly_short()
        assert not unclean.data_loss_marker.possibly_short
        unclean.close(clean)
        again = open_directory(tmp_path, boot_id="boot-2")
        assert (again.previous_shutdown.clean, again.data_loss_marker.possibly_short) == (clean, False)
        again.close(clean=False)


def test_failed_flush_makes_the_next_process_possibly_short() -> None:
    disk, path = FailingFiles(CrashableFiles()), Path("/data")
    fail_to_sync(path, disk)
    for clean in (False, True, False):
        directory = LogDirectory.open(path, disk, 1, "c1", "boot-1")
        assert directory.data_loss_marker.possibly_short, "the kernel may give up its pages at any time"
        directory.open_log(ORDERS, config())
        directory.close(clean)
    directory = LogDirectory.open(path, disk, 1, "c1", "boot-1")
    directory.data_loss_marker.clear_possibly_short()
    directory.close(clean=False)
    assert not LogDirectory.open(path, disk, 1, "c1", "boot-1").data_loss_marker.possibly_short


def test_flush_failure_right_before_close_prevents_the_clean_marker() -> None:
    disk, path = FailingFiles(CrashableFiles()), Path("/data")
    directory = LogDirectory.open(path, disk, 1, "c1", "boot-1")
    log = directory.open_log(ORDERS, config())
    log.append_as_leader(batch(NOW), 0, NOW)
    disk.fail(Fault.SYNC_ERROR)
    with pytest.raises(StorageError):
        log.flush()  # and the failure is not reported yet
    disk.heal()
    directory.close()
    assert LogDirectory.open(path, disk, 1, "c1", "boot-1").data_loss_marker.possibly_short


def test_possibly_short_is_never_cleared_after_a_failed_flush() -> None:
    disk, path = FailingFiles(CrashableFiles()), Path("/data")
    fail_to_sync(path, disk).data_loss_marker.clear_possibly_short()
    assert LogDirectory.open(path, disk, 1, "c1", "boot-1").data_loss_marker.possibly_short


def test_data_of_a_failed_flush_is_durable_after_a_later_process_flushes() -> None:
    files, path = CrashableFiles(), Path("/data")
    fail_to_sync(path, FailingFiles(files))
    directory = LogDirectory.open(path, files, 1, "c1", "boot-1")
    log = directory.open_log(ORDERS, config())
    assert log.log_end_offset == 2, "the page cache has it still"
    log.append_as_leader(batch(NOW), 0, NOW)
    log.flush()
    directory.checkpoints.write_recovery_points()
    held = read_all(log)
    files = files.crash(FORGOTTEN)
    log = LogDirectory.open(path, files, 1, "c1", "boot-2").open_log(ORDERS, config())
    assert log.log_end_offset == 3
    assert read_all(log) == held


def fail_to_sync(path: Path, disk: FailingFiles) -> LogDirectory:
    """Run a process that appends and flushes, appends again, fails to flush, and ends."""
    directory = LogDirectory.open(path, disk, 1, "c1", "boot-1")
    log = directory.open_log(ORDERS, config())
    log.append_as_leader(batch(NOW), 0, NOW)
    log.flush()
    directory.checkpoints.write_recovery_points()
    log.append_as_leader(batch(NOW), 0, NOW)
    disk.fail(Fault.SYNC_ERROR)
    with pytest.raises(StorageError):
        log.flush()
    disk.heal()
    directory.close(clean=False)
    return directory

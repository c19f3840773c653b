"""A disk that fails, at every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from storage.directory.directory_checkpoints import Committed
from storage.directory.log_directory import LogDirectory
from storage.files import File, RealFile, RealFiles
from storage.log.log import Log
from storage.segments.fixed_entry_file import PAGE
from storage.segments.offset_index import OffsetPosition
from storage.segments.time_index import IndexedTime
from tests.storage.logs import NOW, batch, config, read_all
from tidelog.errors import StorageError
from tidelog.model import Buffer, TopicPartition


class FailingFile(RealFile):
    """Asks `disk` before each changing call; a refused write still writes half of its bytes."""

    __slots__ = ("disk",)

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        if self.disk.refuses("write", self.path):  # type: ignore[attr-defined]
            data = b"".join(parts)
            super().write(position, (data[: len(data) // 2],))
            raise StorageError(f"{self.path}: no space left")
        super().write(position, parts)

    def truncate(self, size: int) -> None:
        if self.disk.refuses("truncate", self.path):  # type: ignore[attr-defined]
            raise StorageError(f"{self.path}: input/output error")
        super().truncate(size)

    def fsync(self) -> None:
        if self.disk.refuses("sync", self.path):  # type: ignore[attr-defined]
            raise StorageError(f"{self.path}: input/output error")


class FailingFiles(RealFiles):
    def __init__(self) -> None:
        super().__init__()
        self.refuses: Callable[[str, Path], bool] = lambda call, path: False
        self.replaced: Callable[[Path, bool], object] = lambda path, sync: None

    def open(self, path: Path, *, create: bool = True) -> File:
        file = FailingFile(path, create=create)
        file.disk = self  # type: ignore[attr-defined]
        return file

    def replace(self, path: Path, data: bytes, *, fsync: bool = True) -> None:
        super().replace(path, data, fsync=fsync)
        self.replaced(path, fsync)

    def fsync_directory(self, path: Path) -> None:
        if self.refuses("sync", path):
            raise StorageError(f"{path}: input/output error")


def open_on(files: RealFiles, directory: Path) -> Log:
    return Log.open(directory, config(segment_bytes=5000, index_interval_bytes=1), files, recovery_point=0, clean=False)


def facts(log: Log) -> tuple[bytes, list[OffsetPosition], list[IndexedTime]]:
    """Return the files of the log's first segment: the `.log`, and both indexes, which may have unwritten entries."""
    segment = log.segments[0]
    entries = [segment.offset_index.entry(slot) for slot in range(len(segment.offset_index))]
    return segment.log.path.read_bytes(), entries, [segment.time_index.entry(s) for s in range(len(segment.time_index))]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_write_that_fails_half_way_leaves_the_log_as_it_was(tmp_path: Path, suffix: str) -> None:
    disk = FailingFiles()
    log = open_on(disk, tmp_path)
    held = PAGE  # the first batch has no entry, so the next one fills a page of each index, which is then written
    for number in range(held):
        log.append_as_leader(batch(NOW - held + number), 0, NOW)
    before = facts(log)
    found = log.offset_for_timestamp(0, held), log.log_end_offset, read_all(log)

    disk.refuses = lambda call, path: call == "write" and path.suffix == suffix
    with pytest.raises(StorageError):
        log.append_as_leader(batch(NOW), 0, NOW)
    assert facts(log) == before
    assert (log.offset_for_timestamp(0, held), log.log_end_offset, read_all(log)) == found

    disk.refuses = lambda call, path: False
    assert log.append_as_leader(batch(NOW), 0, NOW).base_offset == held
    assert len(log.segments[0].offset_index) == len(log.segments[0].time_index) == PAGE


def test_log_fails_if_a_partly_written_batch_cannot_be_removed(tmp_path: Path) -> None:
    disk = FailingFiles()
    log = open_on(disk, tmp_path)
    log.append_as_leader(batch(NOW), 0, NOW)
    disk.refuses = lambda call, path: call in ("write", "truncate") and path.suffix == ".log"
    with pytest.raises(StorageError):
        log.append_as_leader(batch(NOW), 0, NOW)
    disk.refuses = lambda call, path: False
    with pytest.raises(StorageError, match="offline"):
        log.append_as_leader(batch(NOW), 0, NOW)
    log.abandon()
    assert open_on(RealFiles(), tmp_path).log_end_offset == 1


def test_failed_flush_fails_all_later_appends(tmp_path: Path) -> None:
    disk = FailingFiles()
    log = open_on(disk, tmp_path)
    log.append_as_leader(batch(NOW), 0, NOW)
    disk.refuses = lambda call, path: call == "sync"
    with pytest.raises(StorageError):
        log.flush()
    disk.refuses = lambda call, path: False
    assert log.recovery_point == 0
    for again in (
        log.flush,
        lambda: log.append_as_leader(batch(NOW), 0, NOW),
        lambda: log.append_as_follower(batch(NOW, base_offset=1)),
        lambda: log.assign_leader_epoch(1),
        lambda: log.roll(NOW),
        lambda: log.read(0, 1),
        lambda: log.offset_for_timestamp(0, 1),
        lambda: log.offset_of_max_timestamp(1),
        lambda: log.segment_offsets(NOW, 1, NOW),
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully_and_start_at(0),
        lambda: log.delete_records(1, 1),
        lambda: log.delete_old_segments(NOW, 1),
    ):
        with pytest.raises(StorageError, match="offline"):
            again()


def test_recovery_point_covers_only_flushed_files(tmp_path: Path) -> None:
    disk = FailingFiles()
    log = open_on(disk, tmp_path)
    for number in range(3):
        log.append_as_leader(batch(NOW + number), 0, NOW)
    synced: list[tuple[str, int]] = []
    disk.refuses = lambda call, path: call == "sync" and synced.append((path.name, log.recovery_point)) is not None
    log.flush()
    names = ["00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex"]
    assert synced == [(name, 0) for name in [*names, "leader-epoch-checkpoint", tmp_path.name, tmp_path.parent.name]]
    assert log.recovery_point == 3


def test_truncation_during_a_flush_keeps_the_recovery_point_below_it(tmp_path: Path) -> None:
    disk = FailingFiles()
    log = open_on(disk, tmp_path)
    for _ in range(5):
        log.append_as_leader(batch(NOW), 0, NOW)

    def meanwhile(call: str, path: Path) -> bool:
        if call == "sync" and path.suffix == ".log" and log.log_end_offset == 5:
            log.truncate_to(2)
            for _ in range(4):
                log.append_as_leader(batch(NOW), 1, NOW)
        return False

    disk.refuses = meanwhile
    log.flush()
    assert (log.recovery_point, log.log_end_offset) == (0, 6)


def test_checkpoint_flushes_its_content_and_its_name(tmp_path: Path) -> None:
    disk = FailingFiles()
    directory = LogDirectory.open(tmp_path, disk, 1, "c1", None)
    replaced: list[tuple[str, bool]] = []
    disk.replaced = lambda path, sync: replaced.append((path.name, sync))
    tp = TopicPartition("t", 0)
    log = directory.open_log(tp, config())
    directory.checkpoints.write_high_watermarks({tp: Committed.of(log, 0)})
    directory.checkpoints.write_recovery_points()
    directory.checkpoints.write_log_starts()
    assert {name for name, sync in replaced if sync} == {
        "replication-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
    }
    directory.close()


def test_directory_that_fails_at_close_gets_no_clean_marker(tmp_path: Path) -> None:
    disk = FailingFiles()
    directory = LogDirectory.open(tmp_path, disk, 1, "c1", None)
    log = directory.open_log(TopicPartition("orders", 0), config())
    log.append_as_leader(batch(NOW), 0, NOW)
    disk.refuses = lambda call, path: call == "sync" and path.suffix == ".log"
    with pytest.raises(StorageError):
        directory.close()
    again = LogDirectory.open(tmp_path, RealFiles(), 1, "c1", None)
    assert not again.previous_shutdown.clean
    again.close()


def test_errors_of_the_operating_system_name_the_file(tmp_path: Path) -> None:
    file = RealFiles().open(tmp_path / "none" / "a.log")
    with pytest.raises(StorageError, match=r"none/a\.log: No such file"):
        file.size()

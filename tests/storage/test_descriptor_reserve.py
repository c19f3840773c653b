"""Files can be opened although connections have taken all other descriptors of the process."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from storage.checkpoints import RECOVERY_POINTS, read_offsets
from storage.configs.log_config import LogConfig
from storage.descriptor_reserve import DescriptorReserve, OutOfDescriptorsError
from storage.directory.directory_checkpoints import Committed
from storage.directory.leadership_checkpoint import Leadership
from storage.files import RealFiles
from storage.log.log import Log
from storage.log_manager import LogManager
from storage.open_files import OpenFiles
from storage.segments.segment import Segment
from tests.storage.logs import NOW, append, config, read_all, remove_deleted
from tidelog.errors import StorageError
from tidelog.model import TopicPartition

TP = TopicPartition("orders", 0)


@contextmanager
def none_left() -> Iterator[list[int]]:
    """Take all descriptors of this process, and yield some of them for the block to close."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 8, before[1]))
    taken: list[int] = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in taken:
            os.close(descriptor)


def free_descriptors() -> int:
    """Return how many more files this process may open."""
    opened: list[int] = []
    with suppress(OSError):
        while True:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    for descriptor in opened:
        os.close(descriptor)
    return len(opened)


@pytest.fixture
def reserve() -> Iterator[DescriptorReserve]:
    kept = DescriptorReserve(16)
    yield kept
    kept.close()


def test_logs_append_roll_and_truncate_with_reserved_descriptors_only(
    tmp_path: Path, reserve: DescriptorReserve
) -> None:
    manager = LogManager.open([tmp_path], RealFiles(OpenFiles(reserve=reserve)), 1, "c1", None)
    log = manager.get_or_create(TP, "A" * 22, config(segment_bytes=150))
    append(log)
    with none_left():
        for _ in range(4):
            append(log)
        assert len(log.segments) > 2
        log.flush()
        manager.checkpoint_recovery_points()
        manager.checkpoint_high_watermarks({TP: Committed.of(log, 5)})
        log.truncate_to(3)
        append(log)
        assert log.roll(NOW)
        manager.get_or_create(TopicPartition("other", 0), "B" * 22, LogConfig())
        manager.write_epochs()
        assert read_all(log)
    assert manager.works and not manager.failed()
    manager.close()
    again = LogManager.open([tmp_path], RealFiles(), 1, "c1", None)
    again.open_logs()
    assert again.logs()[TP].log_end_offset == 4
    assert again.logs().keys() == {TP, TopicPartition("other", 0)}
    again.close()


@pytest.mark.parametrize("fsync", [True, False])
def test_replacement_without_a_descriptor_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    """The caller repeats the call, and must not meet the new contents before."""
    path, files = tmp_path / "a", RealFiles()
    files.replace(path, b"old")
    real, left = os.open, [0]

    def open_some(*arguments: Any, **options: Any) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(*arguments, **options)

    monkeypatch.setattr(os, "open", open_some)
    for free in range(1 + fsync):
        left[0] = free
        with pytest.raises(OutOfDescriptorsError):
            files.replace(path, b"new", fsync=fsync)
        assert path.read_bytes() == b"old"
    left[0] = 1 + fsync
    files.replace(path, b"new", fsync=fsync)
    assert path.read_bytes() == b"new"


def test_reserve_refills_from_freed_descriptors(tmp_path: Path, reserve: DescriptorReserve) -> None:
    files = RealFiles(OpenFiles(reserve=reserve))
    with none_left() as taken:
        held = [files.open(tmp_path / str(number)) for number in range(3)]
        for file in held:
            file.write(0, (b"x",))
        kept = len(reserve._held)
        for _ in range(3):
            os.close(taken.pop())
        files.replace(tmp_path / "a", b"")
        assert len(reserve._held) == kept + 2, "one was needed"
    for file in held:
        file.close()


def test_descriptor_warning_is_logged_once_for_many_files(
    tmp_path: Path, reserve: DescriptorReserve, caplog: pytest.LogCaptureFixture
) -> None:
    files = RealFiles(OpenFiles(reserve=reserve))
    with none_left():
        for _ in range(5):
            files.replace(tmp_path / "a", b"")
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == ["no file descriptor is left"]


def test_lack_of_descriptors_refuses_appends_and_fails_no_directory(
    tmp_path: Path,
) -> None:
    manager = LogManager.open([tmp_path], RealFiles(), 1, "c1", None)
    log = manager.get_or_create(TP, "A" * 22, config(segment_bytes=150, flush_messages=1))
    append(log)
    log.flush()
    append(log)
    synced = log.recovery_point
    with none_left() as taken:
        manager.checkpoint_recovery_points()
        manager.checkpoint_high_watermarks({TP: Committed.of(log, 1)})
        log.assign_leader_epoch(3)
        manager.write_epochs()
        assert manager.has_unwritten_epochs, "they wait"
        with pytest.raises(OutOfDescriptorsError):
            manager.checkpoint_leaderships({TP: Leadership("A" * 22, 3, 1, 7, 1)})
        with pytest.raises(OutOfDescriptorsError) as refused:
            log.flush()
        manager.report(TP, refused.value)
        assert log.recovery_point == synced
        with pytest.raises(OutOfDescriptorsError) as refused:
            append(log, leader_epoch=3)
        manager.report(TP, refused.value)
        os.close(taken.pop())  # enough for a snapshot, and for one of a segment's three files
        with pytest.raises(OutOfDescriptorsError):
            append(log, leader_epoch=3)
        os.close(taken.pop())
        with pytest.raises(OutOfDescriptorsError):
            append(log, leader_epoch=3)
    assert log.log_end_offset == 2
    assert sorted(path.name for path in log.directory.glob("*.log")) == ["00000000000000000000.log"]
    assert manager.works and not manager.failed()
    assert append(log, leader_epoch=3) == 2
    log.flush()
    manager.checkpoint_recovery_points()
    manager.write_epochs()
    assert log.recovery_point == 3
    manager.close()


def test_truncation_without_a_descriptor_fails_only_after_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = LogManager.open([tmp_path], RealFiles(), 1, "c1", None)
    log = manager.get_or_create(TP, "A" * 22, config(segment_bytes=150))
    for _ in range(5):
        append(log)
    log.flush()
    manager.checkpoint_recovery_points()
    with none_left():
        for _ in range(2):
            with pytest.raises(OutOfDescriptorsError) as refused:
                log.truncate_to(3)
            manager.report(TP, refused.value)
    assert log.log_end_offset == 5 and read_all(log)

    def half_way(segment: Segment) -> None:
        raise OutOfDescriptorsError("none is left")

    monkeypatch.setattr(Segment, "reopened", half_way)
    with pytest.raises(StorageError, match="while segments of") as failed:
        log.truncate_to(1)
    assert not isinstance(failed.value, OutOfDescriptorsError)
    manager.report(TP, failed.value)
    assert not manager.works


def test_truncation_retries_a_checkpoint_that_could_not_be_written(tmp_path: Path) -> None:
    manager = LogManager.open([tmp_path], RealFiles(), 1, "c1", None)
    log = manager.get_or_create(TP, "A" * 22, config())
    for _ in range(5):
        append(log)
    log.flush()
    manager.checkpoint_recovery_points()
    with none_left(), pytest.raises(OutOfDescriptorsError):
        log.truncate_to(3)
    assert log.truncate_to(3)
    assert read_offsets(RealFiles(), tmp_path / RECOVERY_POINTS) == {TP: 3}
    manager.close()


def test_used_up_reserve_raises_an_error(tmp_path: Path) -> None:
    kept = DescriptorReserve(1)
    files = RealFiles(OpenFiles(reserve=kept))
    with none_left():
        first, second = files.open(tmp_path / "1"), files.open(tmp_path / "2")
        first.write(0, (b"x",))
        with pytest.raises(OutOfDescriptorsError, match=os.strerror(errno.EMFILE)):
            second.write(0, (b"x",))
        first.close()


def test_log_creation_is_repeated_once_descriptors_are_free(
    tmp_path: Path,
) -> None:
    manager = LogManager.open([tmp_path], RealFiles(), 1, "c1", None)
    spare = 0
    with none_left() as taken:
        while TP not in manager.logs() or not manager.logs()[TP].topic_id:
            with suppress(OutOfDescriptorsError):
                manager.get_or_create(TP, "A" * 22, LogConfig())
            assert free_descriptors() == spare - (3 if TP in manager.logs() else 0), "none is lost to what was not made"
            assert manager.works and not manager.failed()
            os.close(taken.pop())
            spare += 1
    assert spare > 3
    assert append(manager.logs()[TP]) == 0
    manager.close()


class Flooded(RealFiles):
    """Determines where and when other users take every descriptor."""

    flood_at = ""

    def replace(self, path: Path, data: bytes, *, fsync: bool = True) -> None:
        self._raise_if_flooded("replace")
        super().replace(path, data, fsync=fsync)

    def remove_directory(self, path: Path) -> None:
        self._raise_if_flooded("remove_directory")
        super().remove_directory(path)

    def _raise_if_flooded(self, call: str) -> None:
        if call == self.flood_at:
            raise OutOfDescriptorsError("none is left")


@pytest.mark.parametrize("leave", [LogManager.delete, LogManager.set_aside], ids=["deleted", "set-aside"])
def test_deletion_without_a_descriptor_leaves_the_log_whole(
    tmp_path: Path, leave: Callable[[LogManager, TopicPartition], object]
) -> None:
    files = Flooded()
    manager = LogManager.open([tmp_path], files, 1, "c1", None)
    log = manager.get_or_create(TP, "A" * 22, config())
    append(log)
    log.flush()
    manager.checkpoint_recovery_points()
    files.flood_at = "replace"
    for _ in range(2):
        with pytest.raises(OutOfDescriptorsError):
            leave(manager, TP)
        assert manager.works and not manager.failed()
        assert manager.logs() == {TP: log} and read_all(log)
    files.flood_at = ""
    leave(manager, TP)
    assert not manager.logs() and not (tmp_path / "orders-0").exists()
    assert read_offsets(files, tmp_path / RECOVERY_POINTS) == {}
    assert manager.works and not manager.failed()
    manager.close()


def test_removal_without_a_descriptor_is_repeated_with_the_next_log(
    tmp_path: Path,
) -> None:
    files, other = Flooded(), TopicPartition("other", 0)
    manager = LogManager.open([tmp_path], files, 1, "c1", None)
    for tp in (TP, other):
        append(manager.get_or_create(tp, "A" * 22, config()))
    files.flood_at = "remove_directory"
    manager.delete(TP)
    remove_deleted(manager)
    assert manager.works and not manager.failed()
    assert [path.name.partition(".")[0] for path in tmp_path.glob("*-delete")] == ["orders-0"]
    files.flood_at = ""
    manager.delete(other)
    remove_deleted(manager)
    assert not list(tmp_path.glob("o*"))
    manager.close()


def test_stray_log_stays_aside_if_no_descriptor_opens_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = LogManager.open([tmp_path / "a", tmp_path / "b"], RealFiles(), 1, "c1", None)
    others = [TopicPartition("other", partition) for partition in range(4)]
    for tp in (TP, *others):
        append(manager.get_or_create(tp, "A" * 22, config()))
    manager.delete(others[0])  # so that a new log would go to another directory than this one's
    manager.set_aside(TP)

    def flooded(*arguments: object, **options: object) -> Log:
        raise OutOfDescriptorsError("none is left")

    with monkeypatch.context() as patched:
        patched.setattr(Log, "open", flooded)
        with pytest.raises(OutOfDescriptorsError):
            manager.get_or_create(TP, "A" * 22, config(), in_sync=True)
    assert manager.works and not manager.failed()
    assert manager.get_or_create(TP, "A" * 22, config(), in_sync=True).log_end_offset == 1
    manager.close()

"""Several log directories: each fails independently, and the contents of a failed one are remembered."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from storage.configs.log_config import LogConfig
from storage.directory.directory_checkpoints import Committed
from storage.log.log import Log
from storage.log_maintenance import LogMaintenance
from storage.log_manager import LogManager
from tests.storage.logs import NOW, UnsyncedFiles, append, config, read_all, remove_deleted
from tidelog.errors import DataDirectoryError, IneligibleReplicaError, StorageError
from tidelog.model import TopicPartition
from verify.simulation.disks.crashable_files import CrashableFiles, PowerCut
from verify.simulation.disks.failing_files import FailingFiles, Fault
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT, Fate

ORDERS = [TopicPartition("orders", partition) for partition in range(6)]
HOSTED = dict.fromkeys(ORDERS, "id")


class Machine:
    """Three disks and the broker that runs on them."""

    def __init__(self, root: Path) -> None:
        self.paths = [root / name for name in ("a", "b", "c")]
        self.files = FailingFiles(UnsyncedFiles())

    def start(self, hosted: Mapping[TopicPartition, str] | None = None, **settings: int) -> LogManager:
        manager = LogManager.open(self.paths, self.files, 1, "c1", "boot-1")
        manager.open_logs(hosted=hosted, **settings)
        return manager

    def start_with_records(self) -> LogManager:
        manager = self.start()
        for tp in ORDERS:
            append(manager.get_or_create(tp, "id", LogConfig()))
        return manager


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def places(manager: LogManager) -> dict[str, list[int]]:
    return {each.path.name: sorted(tp.partition for tp in each.logs) for each in manager.directories}


# --- opening -------------------------------------------------------------------------------------------------


def test_new_log_is_created_in_the_directory_with_the_fewest_logs(machine: Machine) -> None:
    manager = machine.start_with_records()
    assert places(manager) == {"a": [0, 3], "b": [1, 4], "c": [2, 5]}
    manager.delete(ORDERS[1], ORDERS[4])
    manager.get_or_create(TopicPartition("new", 0), "new", LogConfig())
    manager.get_or_create(TopicPartition("new", 1), "new", LogConfig())
    assert places(manager)["b"] == [0, 1]


def test_every_log_is_found_where_it_is(machine: Machine) -> None:
    manager = machine.start_with_records()
    manager.checkpoint_high_watermarks({tp: Committed.of(log, tp.partition) for tp, log in manager.logs().items()})
    manager.close()
    assert (machine.paths[1] / "replication-offset-checkpoint").read_text() == "0\n2\norders 1 1\norders 4 4\n"
    manager = machine.start(HOSTED, threads=2)
    assert places(manager) == {"a": [0, 3], "b": [1, 4], "c": [2, 5]}
    assert manager.high_watermarks() == {tp: tp.partition for tp in ORDERS}
    assert all(each.previous_shutdown.clean for each in manager.directories)
    assert not [log for log in manager.logs().values() if log.recovered.checked_bytes]


def test_only_the_directory_without_a_clean_marker_is_recovered(machine: Machine) -> None:
    machine.start_with_records().close()
    (machine.paths[1] / ".kafka_cleanshutdown").unlink()
    (machine.paths[1] / "recovery-point-offset-checkpoint").unlink()
    manager = machine.start(HOSTED)
    assert {tp.partition for tp, log in manager.logs().items() if log.recovered.checked_bytes} == {1, 4}


def test_directories_are_opened_side_by_side_and_so_are_the_logs_of_one(machine: Machine) -> None:
    machine.start_with_records().close(clean=False)
    all_six = threading.Barrier(6, timeout=20)
    met: set[str] = set()

    class MeetingFiles(UnsyncedFiles):
        def read(self, path: Path) -> bytes | None:
            if path.name == "leader-epoch-checkpoint" and path.parent.name not in met:
                met.add(path.parent.name)
                all_six.wait()  # breaks if one log waits for another
            return super().read(path)

    machine.files = FailingFiles(MeetingFiles())
    manager = LogManager.open(machine.paths, machine.files, 1, "c1", "boot-1")
    manager.open_logs(threads=2)
    assert len(met) == 6


@pytest.mark.parametrize("other", ["a", "./a", "b/../a"])
def test_the_same_directory_twice_is_refused(tmp_path: Path, other: str) -> None:
    with pytest.raises(DataDirectoryError, match="twice"):
        LogManager.open([tmp_path / "a", tmp_path / other], UnsyncedFiles(), 1, "c1", None)
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_directory_is_the_same_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(DataDirectoryError, match="in use"):
        LogManager.open([tmp_path / "a", tmp_path / "b"], UnsyncedFiles(), 1, "c1", None)


def test_one_directory_of_another_broker_keeps_all_of_them_as_they_were(machine: Machine) -> None:
    machine.start_with_records().close()
    meta = machine.paths[2] / "meta.properties"
    ours = meta.read_text()
    meta.write_text(ours.replace("broker.id=1", "broker.id=2"))
    with pytest.raises(
        DataDirectoryError, match=f"{meta} says broker.id=2 instead of 1: the directory belongs to another broker"
    ):
        machine.start()
    meta.write_text(ours)
    assert all(each.previous_shutdown.clean for each in machine.start().directories)


def test_partition_in_two_directories_is_refused_with_both_paths(machine: Machine) -> None:
    machine.start_with_records().close()
    a, b = machine.paths[:2]
    (a / "orders-0").rename(b / "orders-0")
    machine.start(HOSTED).close()  # the log was moved: accepted
    shutil.copytree(b / "orders-0", a / "orders-0")
    with pytest.raises(DataDirectoryError, match=f"orders-0 has a log in {a} and another in {b}"):
        machine.start(HOSTED)


# --- failing -------------------------------------------------------------------------------------------------


def test_a_disk_that_fails_takes_its_logs_along_and_no_others(machine: Machine) -> None:
    manager = machine.start_with_records()
    logs = dict(manager.logs())
    machine.files.fail(Fault.WRITE_ERROR, machine.paths[1])
    with pytest.raises(StorageError) as raised:
        append(logs[ORDERS[1]])
    manager.report(ORDERS[1], raised.value)
    [(path, error)] = manager.failed()
    assert set(manager.take_offline(path, error)) == {ORDERS[1], ORDERS[4]}
    assert manager.failed() == []
    assert manager.failures == {machine.paths[1]: raised.value}
    machine.files.heal()
    for tp in ORDERS:
        if tp.partition in (1, 4):
            for call in (append, read_all, lambda log: log.flush(), lambda log: log.offset_for_timestamp(0, 1)):
                with pytest.raises(StorageError, match="offline"):
                    call(logs[tp])
        else:
            assert append(logs[tp]) == 1
    with pytest.raises(StorageError, match="may be in a directory that is offline"):
        manager.get_or_create(ORDERS[1], "id", LogConfig())
    assert places(manager) == {"a": [0, 3], "c": [2, 5]}
    manager.checkpoint_recovery_points()
    manager.close()
    manager = machine.start(HOSTED)
    assert {each.path.name for each in manager.directories if each.previous_shutdown.clean} == {"a", "c"}
    assert all(log.log_end_offset == (1 if tp.partition in (1, 4) else 2) for tp, log in manager.logs().items())


def test_logs_go_offline_although_their_files_cannot_be_closed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = machine.start_with_records()
    path = machine.paths[1]

    def fail(log: Log) -> None:
        raise StorageError("close: the disk does not answer")

    monkeypatch.setattr(Log, "abandon", fail)
    assert set(manager.take_offline(path, StorageError("gone"))) == {ORDERS[1], ORDERS[4]}
    monkeypatch.undo()
    assert f"log directory {path}: close: the disk does not answer" in caplog.text
    with pytest.raises(StorageError, match="may be in a directory that is offline"):
        manager.get_or_create(ORDERS[1], "id", LogConfig())
    assert manager.failures[path].args == ("gone",)


def test_a_checkpoint_that_cannot_be_written_fails_its_directory_alone(machine: Machine) -> None:
    manager = machine.start_with_records()
    machine.files.fail(Fault.FULL, machine.paths[2])
    manager.checkpoint_high_watermarks({tp: Committed.of(log, 1) for tp, log in manager.logs().items()})
    manager.checkpoint_recovery_points()
    [(path, error)] = manager.failed()
    assert path == machine.paths[2]
    with pytest.raises(StorageError, match="offline"):
        append(manager.logs()[ORDERS[5]])
    manager.take_offline(path, error)
    machine.files.heal()
    LogManager.open([path], machine.files, 1, "c1", None).close()  # its lock is released for a repair


def test_a_log_that_is_opened_while_its_disk_fails_fails_too(machine: Machine) -> None:
    manager = machine.start()
    directory = manager.directories[0]
    machine.files.watch = lambda call, path: directory.fail(StorageError("gone"))
    log = directory.open_log(ORDERS[0], LogConfig())
    with pytest.raises(StorageError, match="gone"):
        append(log)


@pytest.mark.parametrize("fault", [Fault.READ_ERROR, Fault.READ_ONLY, Fault.VANISHED])
def test_a_directory_that_cannot_be_opened_is_offline_from_the_start(machine: Machine, fault: Fault) -> None:
    machine.start_with_records().close()
    machine.files.fail(fault, machine.paths[0])
    manager = machine.start(HOSTED)
    assert places(manager) == {"b": [1, 4], "c": [2, 5]}
    assert list(manager.failures) == [machine.paths[0]]
    for tp in (ORDERS[0], ORDERS[3]):
        for in_sync in (True, False):
            with pytest.raises(StorageError, match="may be in a directory that is offline"):
                manager.get_or_create(tp, "id", LogConfig(), in_sync=in_sync)
    append(manager.get_or_create(TopicPartition("new", 0), "new", LogConfig()))
    manager.close()
    machine.files.heal()
    manager = machine.start({**HOSTED, TopicPartition("new", 0): "new"})
    assert {tp: log.log_end_offset for tp, log in manager.logs().items()} == dict.fromkeys(
        [*ORDERS, TopicPartition("new", 0)], 1
    )


def test_a_file_in_a_directory_s_place_is_a_failed_directory(machine: Machine) -> None:
    machine.start_with_records().close()
    machine.paths[0].rename(machine.paths[0].with_name("elsewhere"))
    machine.paths[0].write_text("")
    manager = machine.start(HOSTED)
    assert list(manager.failures) == [machine.paths[0]]
    manager.close()
    machine.paths[0].unlink()
    assert "does not exist any more" in str(machine.start(HOSTED).failures[machine.paths[0]])
    assert not machine.paths[0].exists()


def test_a_log_that_cannot_be_read_at_the_start_fails_its_directory(machine: Machine) -> None:
    machine.start_with_records().close(clean=False)
    machine.files.fail(Fault.READ_ERROR, matching=lambda path: path.parent.name == "orders-4" and path.suffix == ".log")
    manager = machine.start(HOSTED)
    assert places(manager) == {"a": [0, 3], "c": [2, 5]}
    with pytest.raises(StorageError, match="offline"):
        manager.get_or_create(ORDERS[1], "id", LogConfig())


def test_broker_does_not_start_without_a_working_directory(machine: Machine) -> None:
    machine.start_with_records().close()
    machine.files.fail(Fault.READ_ERROR)
    with pytest.raises(StorageError):
        machine.start()
    machine.files.heal()
    machine.files.fail(Fault.READ_ERROR, matching=lambda path: path.suffix == ".log")
    with pytest.raises(StorageError, match="no log directory works"):
        machine.start()


def test_later_topic_gets_a_log_while_the_earlier_log_is_offline(machine: Machine) -> None:
    manager = machine.start_with_records()
    manager.take_offline(machine.paths[0], StorageError("gone"))
    append(manager.get_or_create(ORDERS[0], "later", LogConfig()))
    manager.close()
    manager = machine.start({ORDERS[0]: "later"})
    assert places(manager)["a"] == []
    assert manager.logs()[ORDERS[0]].topic_id == "later"
    assert len(list(machine.paths[0].glob("*-stray"))) == 2


def test_deletion_does_not_forget_a_log_in_an_offline_directory(machine: Machine) -> None:
    manager = machine.start_with_records()
    manager.take_offline(machine.paths[0], StorageError("gone"))
    manager.delete(ORDERS[0], ORDERS[1])
    with pytest.raises(StorageError, match=r"orders-0 may be in a directory that is offline"):
        manager.get_or_create(ORDERS[0], "id", LogConfig())
    append(manager.get_or_create(ORDERS[1], "id", LogConfig()))  # its directory works, so that it was deleted
    manager.close()
    manager = machine.start(HOSTED)
    assert 0 in places(manager)["a"] and read_all(manager.logs()[ORDERS[0]])


def test_new_log_uses_the_next_directory_if_the_first_choice_fails(machine: Machine) -> None:
    manager = machine.start()
    machine.files.fail(Fault.FULL, machine.paths[0])
    manager.get_or_create(ORDERS[0], "id", LogConfig())
    assert [path for path, _ in manager.failed()] == machine.paths[:1]
    assert places(manager)["b"] == [0]


@pytest.mark.parametrize("full_after", [1, 2, 3])
def test_failed_creation_is_set_aside_if_the_log_exists_elsewhere(machine: Machine, full_after: int) -> None:
    manager = machine.start()
    machine.files.fail(Fault.FULL, machine.paths[0], after=full_after)
    log = manager.get_or_create(ORDERS[0], "id", LogConfig())
    append(log)
    assert places(manager)["b"] == [0]
    assert (machine.paths[0] / "orders-0").exists()
    manager.take_offline(*manager.failed()[0])
    manager.close()
    machine.files.heal()
    for _ in range(2):
        manager = machine.start(HOSTED)
        assert places(manager)["a"] == []
        assert read_all(manager.logs()[ORDERS[0]])
        assert not (machine.paths[0] / "orders-0").exists()
        manager.close()


# --- strays and losses ---------------------------------------------------------------------------------------


def test_logs_of_topics_that_were_deleted_meanwhile_are_set_aside(machine: Machine) -> None:
    machine.start_with_records().close()
    hosted = {ORDERS[0]: "id", ORDERS[1]: "another id"}
    manager = machine.start(hosted)
    assert places(manager) == {"a": [0], "b": [], "c": []}
    strays = [path.name.split(".")[0] for root in machine.paths for path in sorted(root.glob("*-stray"))]
    assert sorted(strays) == ["orders-1", "orders-2", "orders-3", "orders-4", "orders-5"]
    assert manager.get_or_create(ORDERS[1], "another id", LogConfig()).log_end_offset == 0


def test_logs_of_a_topic_of_which_nothing_is_known_are_kept(machine: Machine) -> None:
    machine.start_with_records().close()
    manager = LogManager.open(machine.paths, machine.files, 1, "c1", "boot-1")
    manager.open_logs(hosted={}, unreadable_topics={"orders"})
    assert set(manager.logs()) == set(ORDERS)


def test_log_without_a_topic_id_is_kept(machine: Machine) -> None:
    machine.start_with_records().close()
    (machine.paths[0] / "orders-0" / "partition.metadata").unlink()
    manager = machine.start(HOSTED)
    assert manager.get_or_create(ORDERS[0], "id", LogConfig()).log_end_offset == 1


def test_empty_directory_creates_no_log_of_an_in_sync_replica(machine: Machine) -> None:
    machine.start_with_records().close()
    machine.paths[0].rename(machine.paths[0].with_name("elsewhere"))
    machine.paths[0].mkdir()
    for _ in range(2):  # the next start refuses as well, although the directory is not new any more
        manager = machine.start(HOSTED)
        for tp in (ORDERS[0], ORDERS[3]):
            with pytest.raises(IneligibleReplicaError, match=r"is missing, .* and this replica is in the ISR"):
                manager.get_or_create(tp, "id", LogConfig(), in_sync=True)
        manager.close()
    manager = machine.start(HOSTED)
    append(manager.get_or_create(ORDERS[0], "id", LogConfig(), in_sync=False))
    manager.close()
    manager = machine.start(HOSTED)
    assert manager.get_or_create(ORDERS[0], "id", LogConfig(), in_sync=True).log_end_offset == 1
    append(manager.get_or_create(ORDERS[3], "later", LogConfig(), in_sync=True))
    manager.close()
    machine.start({**HOSTED, ORDERS[3]: "later"}).close()
    assert not [root for root in machine.paths if (root / "lost-logs").exists()]


def test_empty_directory_creates_no_in_sync_log_of_an_unreadable_topic(
    machine: Machine,
) -> None:
    machine.start_with_records().close()
    replace_by_an_empty_one(machine.paths[0])
    manager = LogManager.open(machine.paths, machine.files, 1, "c1", "boot-1")
    manager.open_logs(hosted={}, unreadable_topics={"orders"})
    assert not begins_in_sync(manager, ORDERS[0]), "by now it can be read"
    manager.close()
    for _ in range(2):
        manager = machine.start(HOSTED)
        assert [begins_in_sync(manager, tp) for tp in ORDERS[:2]] == [False, True]
        manager.close()


def test_stray_log_that_fails_to_open_is_not_recreated_elsewhere(machine: Machine) -> None:
    manager = machine.start_with_records()
    manager.set_aside(ORDERS[0])
    lies_in = next(path for path in machine.paths if list(path.glob("*-stray")))
    machine.files.fail(Fault.READ_ERROR, lies_in / "orders-0")
    for _ in range(2):
        with pytest.raises(StorageError):
            manager.get_or_create(ORDERS[0], "id", LogConfig(), in_sync=True)
        for path, error in manager.failed():
            manager.take_offline(path, error)
    manager.close()


def replace_by_an_empty_one(path: Path) -> None:
    path.rename(path.with_name(f"{path.name} before"))
    path.mkdir()


def begins_in_sync(manager: LogManager, tp: TopicPartition) -> bool:
    """Return whether the log of an in-sync replica exists or is created."""
    try:
        manager.get_or_create(tp, "id", LogConfig(), in_sync=True)
    except IneligibleReplicaError:
        return False
    return True


def start_up_to_the_logs(machine: Machine) -> None:
    LogManager.open(machine.paths, machine.files, 1, "c1", "boot-1").close()


def start_beside_a_directory_of_another_broker(machine: Machine) -> None:
    meta = machine.paths[2] / "meta.properties"
    ours = meta.read_text()
    meta.write_text(ours.replace("broker.id=1", "broker.id=2"))
    with pytest.raises(DataDirectoryError):
        machine.start(HOSTED)
    meta.write_text(ours)


@pytest.mark.parametrize("first_start", [start_up_to_the_logs, start_beside_a_directory_of_another_broker])
def test_interrupted_first_start_keeps_the_found_empty_file(
    machine: Machine, first_start: Callable[[Machine], None]
) -> None:
    machine.start_with_records().close()
    replace_by_an_empty_one(machine.paths[0])
    first_start(machine)
    manager = machine.start(HOSTED)
    assert manager.possibly_short
    assert [tp.partition for tp in ORDERS if begins_in_sync(manager, tp)] == [1, 2, 4, 5]


@pytest.mark.parametrize("fate", [FORGOTTEN, KEPT])
def test_power_failure_in_the_first_start_creates_no_empty_in_sync_log(fate: Fate) -> None:
    paths = [Path("/data/a"), Path("/data/b")]

    def start(files: CrashableFiles) -> LogManager:
        manager = LogManager.open(paths, files, 1, "c1", None)
        manager.open_logs(hosted=dict.fromkeys(ORDERS[:2], "id"))
        return manager

    disks = CrashableFiles()
    manager = LogManager.open(paths, disks, 1, "c1", None)
    for tp in ORDERS[:2]:
        append(manager.get_or_create(tp, "id", LogConfig()))
    manager.close()
    disks.remove_directory(paths[0])
    disks.make_directory(paths[0])
    disks.fsync_directory(paths[0].parent)
    for cut in itertools.count():
        files = disks.crash(KEPT)
        files.cut = cut
        try:
            start(files)
        except PowerCut:
            manager = start(files.crash(fate))
            assert manager.possibly_short
            assert begins_in_sync(manager, ORDERS[1]) and not begins_in_sync(manager, ORDERS[0]), files.mutations[-1]
        else:
            break
    steps = ["rename found-empty", "rename meta.properties", "rename lost-logs", "remove found-empty"]
    assert list(dict.fromkeys(each for each in files.mutations if each in steps)) == steps


def test_losses_of_an_empty_directory_are_recorded_despite_an_offline_one(machine: Machine) -> None:
    machine.start_with_records().close()
    replace_by_an_empty_one(machine.paths[0])
    machine.files.fail(Fault.READ_ERROR, machine.paths[1])
    manager = machine.start(HOSTED)
    for tp in (ORDERS[0], ORDERS[1]):
        with pytest.raises(StorageError, match="may be in a directory that is offline"):
            manager.get_or_create(tp, "id", LogConfig())
    manager.close()
    machine.files.heal()
    manager = machine.start(HOSTED)
    assert [tp.partition for tp in ORDERS if begins_in_sync(manager, tp)] == [1, 2, 4, 5]
    manager.close()
    for root in machine.paths:  # a log that has come back is no longer lost
        assert (root / "lost-logs").read_text() == "0\n2\norders 0 id\norders 3 id\n"


def test_losses_are_added_to_the_record_while_a_directory_is_offline(machine: Machine) -> None:
    machine.start_with_records().close()
    replace_by_an_empty_one(machine.paths[0])
    machine.start(HOSTED).close()
    (machine.paths[2] / "orders-2" / "partition.metadata").write_text("version: 0\ntopic_id: another\n")
    machine.files.fail(Fault.READ_ERROR, machine.paths[1])
    manager = machine.start(HOSTED)
    manager.close()
    machine.files.heal()
    manager = machine.start(HOSTED)
    assert [tp.partition for tp in ORDERS if begins_in_sync(manager, tp)] == [1, 4, 5]


def test_offline_directory_does_not_mark_other_logs_as_lost(machine: Machine) -> None:
    manager = machine.start_with_records()
    manager.checkpoint_high_watermarks({tp: Committed.of(log, 1) for tp, log in manager.logs().items()})
    manager.close()
    machine.files.fail(Fault.READ_ERROR, matching=lambda path: path.parent.name == "orders-4" and path.suffix == ".log")
    (machine.paths[1] / ".kafka_cleanshutdown").unlink()
    manager = machine.start(HOSTED)
    assert list(manager.failures) == [machine.paths[1]]
    assert not manager.possibly_short


def test_broker_that_never_had_a_log_may_create_one_while_in_the_isr(machine: Machine) -> None:
    machine.start().close()
    manager = machine.start(HOSTED)
    assert manager.get_or_create(ORDERS[0], "id", LogConfig(), in_sync=True).log_end_offset == 0


def test_session_is_read_from_any_working_directory(machine: Machine) -> None:
    manager = machine.start()
    assert manager.read_session() is None
    manager.write_session("0x17")
    manager.close(clean=False)
    machine.files.fail(Fault.READ_ERROR, machine.paths[0])
    assert machine.start().read_session() == "0x17"


def test_a_broker_that_has_closed_its_directories_makes_no_more_logs(machine: Machine) -> None:
    manager = machine.start()
    manager.close()
    with pytest.raises(StorageError):
        manager.get_or_create(ORDERS[0], "id", LogConfig())


def test_deletion_continues_in_other_directories_and_raises_the_error(machine: Machine) -> None:
    manager = machine.start_with_records()
    machine.files.fail(Fault.READ_ONLY, machine.paths[1])
    with pytest.raises(StorageError, match="Read-only"):
        manager.delete(*ORDERS)
    remove_deleted(manager)
    assert [path for path, _ in manager.failed()] == [machine.paths[1]]
    assert places(manager)["a"] == places(manager)["c"] == []
    assert not list(machine.paths[0].glob("orders*")) and not list(machine.paths[2].glob("orders*"))


def test_close_failure_in_one_directory_closes_the_others_cleanly(machine: Machine) -> None:
    manager = machine.start_with_records()
    machine.files.fail(Fault.SYNC_ERROR, machine.paths[1])
    with pytest.raises(StorageError):
        manager.close()
    machine.files.heal()
    assert {each.path.name for each in machine.start().directories if each.previous_shutdown.clean} == {"a", "c"}


def test_a_log_that_cannot_be_set_aside_stays_known_as_failed(machine: Machine) -> None:
    manager = machine.start_with_records()
    machine.files.fail(Fault.READ_ONLY, machine.paths[1])
    with pytest.raises(StorageError, match="Read-only"):
        manager.set_aside(ORDERS[1])
    assert [path for path, _ in manager.failed()] == [machine.paths[1]]


def test_log_sizes_return_the_error_of_a_failed_directory(machine: Machine) -> None:
    manager = machine.start_with_records()
    a, b, c = machine.paths
    sizes = manager.log_sizes()
    assert sizes[a] == {tp: manager.logs()[tp].size_bytes for tp in (ORDERS[0], ORDERS[3])}
    assert all(size > 0 for size in sizes[a].values())  # type: ignore[union-attr]
    manager.report(ORDERS[1], StorageError("on fire"))
    assert str(manager.log_sizes()[b]) == "on fire"
    manager.take_offline(b, StorageError("on fire"))
    assert list(manager.log_sizes()) == [a, c, b]
    assert isinstance(manager.log_sizes()[b], StorageError)


# --- while threads open logs and remove them -----------------------------------------------------------------


def test_log_sizes_are_available_while_a_thread_creates_logs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = machine.start_with_records()
    more = map(partial(TopicPartition, "more"), itertools.count())
    size_bytes = Log.size_bytes.fget

    def size_beside_the_thread(log: Log) -> int:
        manager.get_or_create(next(more), "id", LogConfig())
        return size_bytes(log)

    monkeypatch.setattr(Log, "size_bytes", property(size_beside_the_thread))
    sizes = manager.log_sizes()
    assert {tp for found in sizes.values() if isinstance(found, dict) for tp in found} >= {*ORDERS}


def test_flush_round_continues_while_logs_are_removed(machine: Machine) -> None:
    class Leaving(dict[TopicPartition, Log]):
        """Simulate the removal of another log at each look-up."""

        def get(self, tp: TopicPartition, default: object = None) -> Log | None:
            found = super().get(tp)
            if tp in (ORDERS[1], ORDERS[4]):
                self.pop(ORDERS[4 if tp == ORDERS[1] else 1], None)
            return found

    manager = machine.start()
    logs = [manager.get_or_create(tp, "id", config(flush_ms=0)) for tp in ORDERS]
    for log in logs:
        append(log)
    manager.directories[1].logs = Leaving(manager.directories[1].logs)
    assert LogMaintenance(manager, machine.files).flush_due(NOW) == len(ORDERS) - 1
    assert sorted(log.recovery_point for log in logs) == [0] + [1] * (len(ORDERS) - 1)


def test_directory_goes_offline_without_waiting_for_a_log_being_opened(machine: Machine) -> None:
    manager = machine.start()
    directory, error = manager.directories[0], StorageError("on fire")
    stalled, on_again = threading.Event(), threading.Event()

    def stall(call: str, path: Path) -> None:
        if path.name == str(ORDERS[0]):
            stalled.set()
            assert on_again.wait(20)

    machine.files.watch = stall
    with ThreadPoolExecutor(2) as threads:
        try:
            opened = threads.submit(directory.open_log, ORDERS[0], LogConfig())
            assert stalled.wait(20)
            threads.submit(manager.take_offline, directory.path, error).result(timeout=10)
            assert machine.files.try_lock(directory.path / ".lock") is None, "a thread still opens a log there"
        finally:
            on_again.set()
        with pytest.raises(StorageError, match="was closed while orders-0 was opened"):
            opened.result()
    assert not directory.logs
    lock = machine.files.try_lock(directory.path / ".lock")
    assert lock is not None
    lock.release()

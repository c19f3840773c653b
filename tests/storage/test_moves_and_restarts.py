"""A start after a crash within or after a move takes the latest log of the partition."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from storage.directory.directory_checkpoints import Committed
from storage.directory.leadership_checkpoint import Leadership
from storage.log_manager import LogManager
from storage.moves.log_move import MoveEndedError
from storage.moves.move_rules import TAIL_BYTES
from storage.steps import call
from tests.storage.cleaning import COMPACT, DAY_MS, clean, put
from tests.storage.logs import NOW, UnsyncedFiles, append, batch, config, read_all, records_of, remove_deleted
from tests.storage.moving_broker import LARGE, TP, Broker, advance, append_large, begin_and_hold_flushes, finish
from tidelog.errors import IneligibleReplicaError
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.failing_files import FailingFiles, Fault
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def crash_images(crashable: CrashableFiles, work: Callable[[], object]) -> Iterator[tuple[bool, CrashableFiles]]:
    """Do the work. Yield (whether only the process ended, the files left) for a crash within each of its calls."""
    images = [(True, crashable.crash(KEPT))]

    def take() -> None:
        images.append((True, crashable.crash(KEPT)))
        images.append((False, crashable.crash(FORGOTTEN)))
        images.extend((False, crashable.crash(Random(seed))) for seed in range(3))

    crashable.boundary = take
    work()
    crashable.boundary = lambda: None
    yield from images


def broker_before_a_move(files: CrashableFiles) -> Broker:
    """Return a broker with a flushed log in a, which is recorded in all checkpoints."""
    broker = Broker(Path("/"), files)
    log = broker.create()
    for path in (Path("/"), *broker.paths):
        files.fsync_directory(path)
    for _ in range(3):
        log.append_as_leader(batch(NOW, producer_id=5, epoch=0, sequence=_), 0, NOW)
        append_large(log)
    log.flush()
    broker.high_watermark = 5
    broker.manager.checkpoint_high_watermarks({TP: Committed.of(log, 5)})
    broker.manager.checkpoint_recovery_points()
    broker.manager.checkpoint_leaderships({TP: Leadership("id", 0, 1, 3, 1)})
    return broker


def test_crash_at_any_moment_loses_no_record() -> None:
    files = CrashableFiles()
    broker = broker_before_a_move(files)
    expected, places = read_all(broker.log), set()

    def work() -> None:
        broker.move_to()
        remove_deleted(broker.manager)

    for killed, image in crash_images(files, work):
        again = Broker(Path("/"), image)
        places.add((again.place(), TP in again.manager.futures))
        assert read_all(again.log) == expected
        assert again.manager.high_watermarks() == {TP: 5}
        if killed:  # no flush protects these files from a power failure
            assert again.log.topic_id == "id"
            assert again.manager.leaderships() == {TP: Leadership("id", 0, 1, 3, 1)}
        repeated = again.log.append_as_leader(batch(NOW, producer_id=5, epoch=0, sequence=2), 0, NOW)
        assert repeated.duplicate
        for name in ("a", "b"):
            kept = [each for each in image.names(Path("/", name)) if each == "orders-0"]
            assert bool(kept) == (again.place() == name)
        if again.place() == "a":
            again.move_to()
            assert read_all(again.log) == expected
        assert append(again.log) == 6
    assert places == {("a", False), ("a", True), ("b", False)}


def test_records_of_a_killed_process_are_not_lost_although_unflushed() -> None:
    files = CrashableFiles()
    broker = Broker(Path("/"), files)
    log = broker.create()
    append_large(log)
    ends: list[int] = []

    def work() -> None:
        def append_more() -> bool:
            append(broker.log)
            return len(ends) > 400

        move = broker.begin()
        advance(move, append_more)
        append(broker.log)

    files.boundary = lambda: ends.append(broker.log.log_end_offset)
    images: list[CrashableFiles] = []
    files.boundary = lambda: (ends.append(broker.log.log_end_offset), images.append(files.crash(KEPT)))
    work()
    files.boundary = lambda: None
    assert broker.place() == "b"
    for end, image in zip(ends, images, strict=True):
        assert Broker(Path("/"), image).log.log_end_offset in (end, end + 1)


def test_power_failure_loses_no_record_that_was_flushed_meanwhile() -> None:
    files = CrashableFiles()
    broker = Broker(Path("/"), files)
    append_large(broker.create())
    for path in (Path("/"), *broker.paths):
        files.fsync_directory(path)
    broker.log.flush()
    images: list[tuple[int, CrashableFiles]] = []

    def append_and_flush() -> bool:
        if not broker.move.holds_flushes:
            append(broker.log)
            broker.log.flush()
        return False

    def take() -> None:
        flushed = broker.log.recovery_point
        images.extend((flushed, files.crash(choice)) for choice in (FORGOTTEN, Random(1), Random(2)))

    files.boundary = take
    advance(broker.begin(), append_and_flush)
    files.boundary = lambda: None
    assert broker.place() == "b" and broker.log.log_end_offset > 5
    places = set()
    for flushed, image in images:
        again = Broker(Path("/"), image)
        places.add(again.place())
        assert again.log.log_end_offset >= flushed
        if again.place() == "a":
            again.move_to()
            assert again.log.log_end_offset >= flushed
    assert places == {"a", "b"}


def test_power_failure_beside_moves_there_and_back_keeps_the_later_log() -> None:
    files = CrashableFiles()
    broker = Broker(Path("/"), files)
    append_large(broker.create())
    for path in (Path("/"), *broker.paths):
        files.fsync_directory(path)
    broker.log.flush()
    images: list[tuple[int, CrashableFiles]] = []

    def take() -> None:
        flushed = broker.log.recovery_point
        images.extend((flushed, files.crash(choice)) for choice in (FORGOTTEN, *map(Random, range(6))))

    for to in (1, 0, 1):
        work = broker.begin(to)
        advance(work, lambda: broker.move.future.is_current)
        append(broker.log)
        broker.log.flush()
        files.boundary = take
        finish(work)
        files.boundary = lambda: None
    for flushed, image in images:
        assert Broker(Path("/"), image).log.log_end_offset >= flushed


def test_high_watermark_is_kept_by_a_checkpoint_before_the_replacement(broker: Broker) -> None:
    append_large(broker.create())
    broker.high_watermark = 1
    other = TP._replace(partition=TP.partition + 1)
    neighbour = broker.manager.get_or_create(other, "id", config())
    directory = broker.manager.directory_of(other)
    assert directory is not None and directory.path.name == "b"
    work = begin_and_hold_flushes(broker)
    broker.manager.checkpoint_high_watermarks({TP: Committed.of(broker.log, 1), other: Committed.of(neighbour, 0)})
    finish(work)
    broker.manager.close(clean=False)
    broker.start()
    assert broker.place() == "b" and broker.manager.high_watermarks() == {TP: 1}


# --- moves that go on after a restart ------------------------------------------------------------------------


def test_restarted_move_does_not_copy_records_again(broker: Broker) -> None:
    log = broker.create()
    for _ in range(40):
        append_large(log)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 30 * TAIL_BYTES)
    copied = broker.move.copied_bytes
    broker.manager.close(clean=False)
    broker.start()
    broker.move_to()
    assert broker.place() == "b" and broker.log.log_end_offset == 40
    assert broker.move.copied_bytes + copied < 41 * (TAIL_BYTES + 100)


def test_restarted_move_copies_a_compacted_log_again(broker: Broker) -> None:
    """A tombstone may have been removed between the two parts, although an older record of its key was copied."""
    broker.config = config(min_compaction_lag_ms=0, **COMPACT)
    log = broker.create()
    put(log, (b"deleted", LARGE))
    put(log, (b"other", LARGE))
    log.roll(NOW)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 0)
    broker.manager.close()
    broker.config = config(**COMPACT, delete_retention_ms=0)
    broker.start()
    put(broker.log, (b"deleted", None))
    broker.log.roll(NOW)
    for later_ms in (1, 2):  # the second round removes the tombstone
        cleaned = clean(broker.log, now_ms=NOW + later_ms * DAY_MS)
    assert cleaned == 3 and [each.key for each, _ in records_of(broker.log)] == [b"other"]
    broker.move_to()
    assert [each.key for each, _ in records_of(broker.log)] == [b"other"]


def test_start_deletes_the_copy_of_a_partition_that_is_elsewhere_now(broker: Broker) -> None:
    append_large(broker.create())
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 0)
    broker.manager.close()
    manager = LogManager.open(broker.paths, broker.files, 1, "c1", "boot-1")
    manager.open_logs(hosted={})
    assert not list(broker.paths[1].glob("*-future")) and not list(manager.futures)


# --- disks that are away at a start --------------------------------------------------------------------------


def test_replaced_log_is_deleted_although_its_disk_was_away(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(tmp_path, files)
    append_large(broker.create())
    work = broker.begin()
    advance(work, lambda: broker.move.future.is_current)
    files.fail(Fault.VANISHED, broker.paths[0])
    finish(work)
    append(broker.log)
    broker.manager.close(clean=False)
    broker.start()
    assert broker.place() == "b" and (broker.paths[1] / "orders-0/moved-from").exists()
    broker.manager.close(clean=False)
    files.heal()
    broker.start()
    assert broker.place() == "b" and broker.log.log_end_offset == 2
    assert not (broker.paths[0] / "orders-0").exists()
    assert not (broker.paths[1] / "orders-0/moved-from").exists()


def test_replaced_log_is_deleted_although_the_log_moved_again_meanwhile(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(tmp_path, files, "abcd")
    append_large(broker.create())
    broker.move_by_name("b", files)
    broker.move_by_name("c")
    broker.move_by_name("d")
    assert broker.place() == "d" and broker.log.log_end_offset == 4
    broker.manager.close(clean=False)
    files.heal()
    broker.start()
    assert broker.place() == "d" and broker.log.log_end_offset == 4
    assert [path.name for path in broker.paths if (path / "orders-0").exists()] == ["d"]
    assert not (broker.paths[3] / "orders-0/moved-from").exists()


@pytest.mark.parametrize("names", ["abc", "bac", "cba"])
def test_latest_log_is_kept_if_two_disks_were_away_in_turn(tmp_path: Path, names: str) -> None:
    """The disk b returns with a mark that names a, where the latest log is."""
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(tmp_path, files, names)
    broker.manager.futures.prefer(TP, tmp_path / "a")
    append_large(broker.manager.get_or_create(TP, "id", broker.config))
    broker.move_by_name("b", files)  # a is away
    broker.move_by_name("c", files)  # b is away too
    broker.manager.close(clean=False)
    files.heal()
    files.fail(Fault.VANISHED, tmp_path / "b")
    broker.start()
    assert broker.place() == "c"
    broker.move_by_name("a")
    broker.manager.close(clean=False)
    files.heal()
    broker.start()
    assert broker.place() == "a" and broker.log.log_end_offset == 4
    assert [path.name for path in broker.paths if (path / "orders-0").exists()] == ["a"]


def test_mark_of_an_earlier_topic_deletes_no_log_of_a_later_one(tmp_path: Path) -> None:
    """The disk b returns with a log that was moved from a, where a later topic of the name has its log."""
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(tmp_path, files)
    append_large(broker.create())
    broker.move_by_name("b", files)  # a is away, so that the log in b keeps its mark
    broker.manager.close(clean=False)
    files.heal()
    shutil.rmtree(broker.paths[0] / "orders-0")
    files.fail(Fault.VANISHED, broker.paths[1])
    broker.start()
    broker.manager.futures.prefer(TP, broker.paths[0])
    append_large(broker.manager.get_or_create(TP, "later", broker.config))
    broker.manager.close()
    files.heal()
    broker.hosted = {TP: "later"}
    broker.start()
    assert (broker.place(), broker.log.topic_id, broker.log.log_end_offset) == ("a", "later", 1)


def test_old_log_is_used_without_the_target_only_if_it_is_the_latest() -> None:
    files = CrashableFiles()
    broker = broker_before_a_move(files)
    seen = set()
    for _, image in crash_images(files, broker.move_to):
        disk = FailingFiles(image)
        disk.fail(Fault.VANISHED, broker.paths[1])
        again = Broker(Path("/"), disk)
        replaced = image.exists(broker.paths[1] / "orders-0")
        seen.add((replaced, TP in again.manager.logs()))
        again.manager.close()
        disk.heal()
        again.start()
        assert (again.place(), again.log.log_end_offset) == ("ab"[replaced], 6)
        assert again.manager.high_watermarks() == {TP: 5}
    assert seen == {(False, True), (False, False), (True, False)}


@pytest.mark.parametrize("end", ["cancelled", "interrupted by a stop"])
def test_log_whose_move_has_ended_needs_no_other_directory(tmp_path: Path, end: str) -> None:
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(tmp_path, files)
    append_large(broker.create())
    work, mark = broker.begin(), broker.paths[0] / "orders-0/moving-to"
    work.resume()
    outcome = call(work.step)
    while not mark.exists():
        assert not work.finished
        work.resume(outcome)
        outcome = call(work.step)
    if end == "cancelled":
        broker.manager.futures.cancel(TP)
        with pytest.raises(MoveEndedError):
            work.resume(outcome)
        broker.move.future.discard()
    else:
        broker.move.future.close()
    assert not mark.exists()
    broker.manager.close(clean=False)
    files.fail(Fault.VANISHED, broker.paths[1])
    broker.start()
    assert broker.place() == "a" and broker.log.log_end_offset == 1


@pytest.mark.parametrize("how", ["emptied", "emptied before", "not configured"])
def test_old_log_is_set_aside_if_the_later_one_is_lost(tmp_path: Path, how: str) -> None:
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(tmp_path, files)
    append_large(broker.create())
    broker.move_by_name("b", files)  # a is away
    broker.manager.close(clean=False)
    shutil.rmtree(broker.paths[1])
    if how == "not configured":
        broker.paths = broker.paths[:1]
    else:
        broker.paths[1].mkdir()
    if how == "emptied before":
        broker.start()
        broker.manager.close()
    files.heal()
    for _ in range(2):
        broker.start()
        assert not broker.manager.logs() and list(broker.paths[0].glob("orders-0.*-stray"))
        with pytest.raises(IneligibleReplicaError, match="is missing, or set aside"):
            broker.manager.get_or_create(TP, "id", broker.config, in_sync=True)
        broker.manager.close()
    broker.start()
    assert broker.manager.get_or_create(TP, "id", broker.config).log_end_offset == 0


def test_old_log_that_was_left_out_is_not_opened_for_a_later_topic(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(tmp_path, files, "abc")
    append_large(broker.create())
    broker.move_by_name("b", files)  # a is away
    broker.manager.close(clean=False)
    files.heal()
    files.fail(Fault.VANISHED, broker.paths[1])
    broker.start()
    broker.manager.futures.prefer(TP, broker.paths[0])
    log = broker.manager.get_or_create(TP, "later", broker.config)
    assert (broker.place(), log.log_end_offset) == ("c", 0)

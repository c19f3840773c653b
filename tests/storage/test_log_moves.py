"""A log moves to another log directory of its broker while it is in use (KIP-113)."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest

from storage.directory.directory_checkpoints import Committed
from storage.directory.leadership_checkpoint import Leadership
from storage.files import Files, RealFiles
from storage.log.log import Log
from storage.log_maintenance import LogMaintenance
from storage.log_manager import LogManager
from storage.moves.log_move import LogMove, MoveEndedError
from storage.moves.move_rules import TAIL_BYTES
from storage.steps import PAUSE, SteppedWork, call
from tests.storage.cleaning import COMPACT, DAY_MS, clean, put
from tests.storage.logs import NOW, UnsyncedFiles, append, batch, config, read_all, records_of, remove_deleted
from tests.storage.soundness import assert_sound
from tests.storage.system_calls import Call, SystemCalls
from tidelog.errors import CorruptMessageError, IneligibleReplicaError, StorageError
from tidelog.model import TopicPartition
from tidelog.records import iter_headers
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.failing_files import FailingFiles, Fault
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT

TP = TopicPartition("orders", 0)
HOSTED = {TP: "id"}
#: Larger than the tail that the last step copies itself.
LARGE = bytes(TAIL_BYTES + 1)


class Broker:
    """The log directories a, b … of a broker; the log of `TP` begins in a and is moved to b."""

    def __init__(self, root: Path, files: Files | None = None, names: str = "ab", **settings: object) -> None:
        self.files = files or UnsyncedFiles()
        self.paths = [root / name for name in names]
        self.config = config(**settings)
        self.high_watermark = 0
        self.waits = False
        self.replaced_contents = b""
        self.hosted = HOSTED
        self.start()

    def start(self, boot: str = "boot-1") -> None:
        self.manager = LogManager.open(self.paths, self.files, 1, "c1", boot)
        self.manager.open_logs(lambda topic: self.config, hosted=self.hosted)

    def create(self) -> Log:
        self.manager.futures.prefer(TP, self.paths[0])
        return self.manager.get_or_create(TP, "id", self.config)

    @property
    def log(self) -> Log:
        return self.manager.logs()[TP]

    def begin(self, to: int = 1) -> SteppedWork[None]:
        """Return a move, which has not begun."""
        future = self.manager.futures.get(TP) or self.manager.futures.add(TP, self.manager.directories[to])
        self.move = LogMove(
            self.manager,
            future,
            self.files,
            current=self._current,
            high_watermark=lambda: self.high_watermark,
            replaced=self._replaced,
        )
        return SteppedWork(self.move.steps())

    def _current(self) -> Log | None:
        self.current = self.manager.logs().get(TP)
        return None if self.waits else self.current

    def _replaced(self, log: Log) -> None:
        assert self.current is not None
        self.replaced_contents = read_all(self.current)

    def move_to(self, to: int = 1) -> None:
        finish(self.begin(to))

    def move_by_name(self, to: str, files: FailingFiles | None = None) -> None:
        """Move the log, append a record and restart. With `files` the old disk vanishes before its log is deleted."""
        source = next(path for path in self.paths if path.name == self.place())
        work = self.begin([each.path.name for each in self.manager.directories].index(to))
        advance(work, lambda: self.move.future.is_current)
        if files is not None:
            files.fail(Fault.VANISHED, source)
        finish(work)
        append(self.log)
        self.manager.close(clean=False)
        self.start()

    def place(self) -> str:
        directory = self.manager.directory_of(TP)
        assert directory is not None
        return directory.path.name


def advance(work: SteppedWork[None], until: Callable[[], bool] = lambda: False) -> None:
    """Run the move to its end, or up to the first step after which `until` holds."""
    if not work.begun:
        work.resume()
    while not work.finished and not until():
        work.resume(call(work.step))


def finish(work: SteppedWork[None]) -> None:
    advance(work)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def append_large(log: Log, leader_epoch: int = 0, value: bytes = LARGE) -> None:
    log.append_as_leader(batch(NOW, value=value), leader_epoch, NOW)


# --- the whole way -------------------------------------------------------------------------------------------


def test_moved_log_has_the_records_and_the_old_one_is_deleted(broker: Broker) -> None:
    log = broker.create()
    for _ in range(3):
        append(log)
        append_large(log)
    before, broker.high_watermark = read_all(log), 4
    broker.move_to()
    assert broker.place() == "b" and broker.log is not log and log.closed
    assert read_all(broker.log) == before
    assert append(broker.log) == 6
    (deleted,) = [path for path in broker.paths[0].iterdir() if path.name.startswith("orders")]
    assert deleted.name.endswith("-delete")
    remove_deleted(broker.manager)
    assert not deleted.exists()
    assert sorted(path.name for path in broker.paths[1].iterdir() if path.is_dir()) == ["orders-0"]
    assert not (broker.paths[1] / "orders-0/moved-from").exists()
    broker.manager.close()
    broker.start()
    assert broker.place() == "b" and broker.log.log_end_offset == 7
    assert broker.manager.high_watermarks() == {TP: 4}


def test_records_that_are_appended_meanwhile_are_moved_too(broker: Broker) -> None:
    log = broker.create()
    for _ in range(40):
        append_large(log)
    work, appended = broker.begin(), 40

    def append_more() -> bool:
        nonlocal appended
        if broker.log is log and appended < 80:
            append(log)
            appended += 1
        return False

    advance(work, append_more)
    assert broker.place() == "b" and broker.log.log_end_offset == appended


def test_log_moves_back(broker: Broker) -> None:
    append(broker.create())
    broker.move_to()
    append(broker.log)
    broker.move_to(0)
    assert broker.place() == "a" and broker.log.log_end_offset == 2
    broker.manager.close()
    broker.start()
    assert broker.place() == "a" and broker.log.log_end_offset == 2


# --- what the current log does meanwhile ---------------------------------------------------------------------


def test_truncated_records_are_removed_from_the_copy_too(broker: Broker) -> None:
    log = broker.create()
    for _ in range(6):
        append_large(log)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 5 * TAIL_BYTES)
    log.truncate_to(2)
    for _ in range(6):
        append_large(log, leader_epoch=1, value=b"x" * len(LARGE))
    expected = read_all(log)
    finish(work)
    assert broker.log is not log and read_all(broker.log) == expected
    assert broker.log.epochs == ((0, 0), (1, 2))


def test_piece_that_was_read_during_a_truncation_is_not_used(broker: Broker) -> None:
    log = broker.create()
    for _ in range(4):
        append_large(log)
    work = broker.begin()
    work.resume()
    while True:
        outcome = call(work.step)
        if isinstance(outcome.value, bytes):  # this step has read records
            break
        work.resume(outcome)
    log.truncate_to(1)
    append_large(log, leader_epoch=1, value=b"x" * len(LARGE))
    expected = read_all(log)
    work.resume(outcome)
    finish(work)
    assert read_all(broker.log) == expected


def test_deleted_records_are_deleted_from_the_copy_too(broker: Broker) -> None:
    broker.config = config(segment_bytes=2 * TAIL_BYTES)
    log = broker.create()
    for _ in range(8):
        append_large(log)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 5 * TAIL_BYTES)
    log.delete_records(4, 8)
    assert log.delete_old_segments(NOW, 8)
    finish(work)
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (4, 8)
    assert broker.log.segment_base_offsets[0] == 4
    assert not list(broker.paths[1].glob("orders-0/*.deleted"))


def test_copy_begins_again_if_all_its_records_are_deleted(broker: Broker) -> None:
    broker.config = config(segment_bytes=2 * TAIL_BYTES)
    log = broker.create()
    for _ in range(20):
        append_large(log)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 0)
    assert broker.move.future.log.log_end_offset < 18
    log.delete_records(18, 20)
    log.delete_old_segments(NOW, 20)
    expected = read_all(log)
    finish(work)
    assert (broker.log.log_start_offset, read_all(broker.log)) == (18, expected)


def test_records_deleted_within_a_batch_stay_deleted(broker: Broker) -> None:
    log = broker.create()
    log.append_as_leader(batch(*[NOW] * 10), 0, NOW)
    log.delete_records(4, 10)
    append(log)
    broker.move_to()
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (4, 11)


def test_epoch_without_records_is_moved(broker: Broker) -> None:
    log = broker.create()
    append(log)
    log.assign_leader_epoch(7)
    broker.move_to()
    assert broker.log.latest_epoch == 7
    broker.manager.close(clean=False)
    broker.start()
    assert broker.log.latest_epoch is not None, "the file was written"


def test_producer_is_known_although_its_batches_are_deleted(broker: Broker) -> None:
    log = broker.create()
    for sequence in range(7):
        log.append_as_leader(batch(NOW, producer_id=5, epoch=0, sequence=sequence), 0, NOW)
    append(log)
    log.roll(NOW)
    log.delete_records(8, 8)
    log.delete_old_segments(NOW, 8)
    broker.move_to()
    for _ in range(2):
        repeated = broker.log.append_as_leader(batch(NOW, producer_id=5, epoch=0, sequence=6), 0, NOW)
        assert (repeated.duplicate, repeated.base_offset) == (True, 6)
        broker.manager.close(clean=False)
        broker.start()


def test_log_that_ends_with_a_gap_of_compaction_is_moved(broker: Broker) -> None:
    log = broker.create()
    for _ in range(3):
        append(log)
    log.roll(NOW)
    broker.manager.close()
    path = broker.paths[0] / "orders-0"
    data = (path / f"{0:020}.log").read_bytes()
    (path / f"{0:020}.log").write_bytes(data[: 2 * len(data) // 3])  # as if the last record was compacted away
    for index in path.glob("*index"):
        index.unlink()
    (broker.paths[0] / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    broker.start()
    assert broker.log.log_end_offset == 3 and broker.log.locate(2) is None
    broker.move_to()
    assert broker.log.log_end_offset == 3 and append(broker.log) == 3
    assert len(list(iter_headers(read_all(broker.log)))) == 3
    broker.manager.close(clean=False)
    broker.start()
    assert broker.place() == "b" and broker.log.log_end_offset == 4
    assert broker.manager.cleaner_offset(TP) == 3


def test_move_waits_while_there_is_no_log_to_copy(broker: Broker) -> None:
    append(broker.create())
    broker.waits = True
    work = broker.begin()
    for _ in range(3):
        work.resume()
        assert work.step is PAUSE
    broker.waits = False
    finish(work)
    assert broker.place() == "b"


def test_acknowledged_flush_is_never_lost_by_the_move(broker: Broker) -> None:
    log = broker.create()
    append_large(log)
    work, flushed = broker.begin(), 0

    def append_and_flush() -> bool:
        nonlocal flushed
        if broker.log is log and not broker.move.holds_flushes:
            append(log)
            log.flush()
            flushed = log.recovery_point
        return False

    advance(work, append_and_flush)
    assert broker.log is not log and broker.log.recovery_point >= flushed > 1
    log.flush()  # a flush that waited for the move ends, and changes nothing


def begin_and_hold_flushes(broker: Broker) -> SteppedWork[None]:
    """Flush more and more records, until the move lets the next flush wait, which is the last part of its work."""
    work, log = broker.begin(), broker.log

    def holds() -> bool:
        if not broker.move.holds_flushes:
            append(log)
            log.flush()
        return broker.move.holds_flushes

    advance(work, holds)
    return work


def test_high_watermark_is_kept_by_a_checkpoint_before_the_replacement(broker: Broker) -> None:
    append_large(broker.create())
    broker.high_watermark = 1
    work = begin_and_hold_flushes(broker)
    broker.manager.checkpoint_high_watermarks({TP: Committed.of(broker.log, 1)})
    finish(work)
    broker.manager.close(clean=False)
    broker.start()
    assert broker.place() == "b" and broker.manager.high_watermarks() == {TP: 1}


def test_flushes_go_on_when_a_move_ends_that_let_them_wait(broker: Broker) -> None:
    append_large(broker.create())
    work = begin_and_hold_flushes(broker)
    flush = threading.Thread(target=broker.log.flush, daemon=True)
    flush.start()
    broker.manager.futures.cancel(TP)
    with pytest.raises(MoveEndedError):
        finish(work)
    flush.join(5)
    assert not flush.is_alive()


def test_log_is_not_compacted_while_it_moves(broker: Broker) -> None:
    broker.config = config(**COMPACT)
    log = broker.create()
    for _ in range(3):
        put(log, (b"k", b"v"))
    log.roll(NOW)
    maintenance = LogMaintenance(broker.manager, broker.files)
    round_ = maintenance.begin_cleaning(NOW, {TP: 3})
    assert round_ is not None and maintenance.is_cleaning(TP), "a move must wait for this round"
    round_.end()
    assert not maintenance.is_cleaning(TP)
    move = broker.begin()
    assert maintenance.begin_cleaning(NOW, {TP: 3}) is None
    finish(move)
    broker.log.roll(NOW)
    assert maintenance.begin_cleaning(NOW, {TP: 3}) is not None


# --- random work during a move -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_moved_log_is_the_same_whatever_happens_meanwhile(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    broker = Broker(tmp_path, segment_bytes=3 * TAIL_BYTES, retention_bytes=20 * TAIL_BYTES)
    log, epoch, sequence = broker.create(), 0, 0

    def change() -> bool:
        nonlocal epoch, sequence
        if broker.log is not log:
            return False
        match random.randrange(12):
            case 0 | 1 | 2 | 3:
                for _ in range(random.randrange(4)):
                    append_large(log, epoch, bytes([random.randrange(256)]) * random.choice((1, 100, len(LARGE))))
            case 4:
                header = {"producer_id": random.randrange(3), "epoch": sequence, "sequence": 0}
                log.append_as_leader(batch(NOW, NOW, **header), epoch, NOW)
                sequence += 1
            case 5:
                epoch += 1
                log.assign_leader_epoch(epoch)
            case 6:
                log.truncate_to(random.randint(log.log_start_offset, log.log_end_offset))
                epoch += 1
            case 7 if random.random() < 0.3:
                log.truncate_fully_and_start_at(random.randint(0, log.log_end_offset + 5))
                epoch += 1
            case 8:
                log.delete_records(random.randint(log.log_start_offset, log.log_end_offset), log.log_end_offset)
            case 9:
                log.delete_old_segments(NOW, log.log_end_offset)
            case 10:
                log.roll(NOW)
            case 11 if not broker.move.holds_flushes:
                log.flush()
        return False

    broker.begin()
    for _ in range(25):
        change()
    while broker.log is log:
        work = broker.begin()
        steps = random.randrange(60)

        def restart_or_change() -> bool:
            nonlocal steps
            steps -= 1
            change()
            return steps == 0

        advance(work, restart_or_change)
        if not work.finished:  # as if the process ended: the next move goes on with the same files
            broker.move.release_flushes()
            broker.move.future.close()
    old, new = log, broker.log
    for _, header in iter_headers(read_all(new)):
        epoch = max(epoch, header.partition_leader_epoch)
    assert_sound(new)
    assert (new.log_start_offset, new.log_end_offset) == (old.log_start_offset, old.log_end_offset)
    assert new.epochs == old.epochs and new.recovery_point >= old.recovery_point
    assert new.last_offsets_of_producers == old.last_offsets_of_producers
    assert read_all(new) == broker.replaced_contents


# --- crashes -------------------------------------------------------------------------------------------------


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


def test_move_waits_until_the_previous_one_has_deleted_the_old_log(broker: Broker) -> None:
    append(broker.create())
    previous = broker.begin()
    advance(previous, lambda: broker.move.future.is_current)
    work = broker.begin(0)
    for _ in range(3):
        work.resume()
        assert work.step is PAUSE
    finish(previous)
    finish(work)
    assert broker.place() == "a" and append(broker.log) == 1


# --- failures and the end of moves ---------------------------------------------------------------------------


def test_full_target_ends_only_the_move(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(tmp_path, files)
    log = broker.create()
    for _ in range(4):
        append_large(log)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 0)
    append_large(log)
    files.fail(Fault.FULL, broker.paths[1])
    with pytest.raises(StorageError, match="No space left"):
        finish(work)
    files.heal()
    broker.move.future.discard()
    remove_deleted(broker.manager)
    assert [each.works for each in broker.manager.directories] == [True, True]
    assert not list(broker.paths[1].glob("orders-0*"))
    assert append(log) == 5
    log.flush()


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.WRITE_ERROR, Fault.SYNC_ERROR, Fault.READ_ONLY])
@pytest.mark.parametrize("after", range(0, 60, 3))
def test_failing_target_never_harms_the_replica(tmp_path: Path, fault: Fault, after: int) -> None:
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(tmp_path, files)
    log = broker.create()
    for _ in range(4):
        append_large(log)
    expected = read_all(log)
    files.fail(fault, broker.paths[1], after=after)
    work = broker.begin()
    try:
        finish(work)
    except StorageError:
        assert broker.log is log
    files.heal()
    if broker.log is log:
        assert broker.manager.directories[0].works
        append(log)
        log.flush()
        assert read_all(log)[: len(expected)] == expected
    broker.manager.close(clean=False)
    broker.start()
    assert read_all(broker.log)[: len(expected)] == expected


def test_damaged_record_ends_the_move_and_stays_where_it_is(broker: Broker) -> None:
    log = broker.create()
    for _ in range(3):
        append_large(log)
    path = broker.paths[0] / "orders-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptMessageError):
        broker.move_to()
    assert broker.log is log


def move_from_a_disk_that_fails(root: Path, after: int) -> bool:
    """Move a log whose disk fails all reads of the move after so many. Return whether the move came to its end."""
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(root, files)
    log = broker.create()
    append_large(log)
    source, target = broker.manager.directories
    work, moves = broker.begin(), True
    future = broker.move.future
    files.fail(Fault.READ_ERROR, source.path, matching=lambda _: moves and not future.is_current, after=after)
    advance(work, lambda: not source.works or future.end_offset == log.log_end_offset)
    if source.works:
        moves = False
        append(log)  # the tail, which the last step copies
        moves = True
        advance(work, lambda: not source.works)
    assert target.works and (broker.place() == "b") is work.finished
    assert work.finished or (work.step is PAUSE and not source.works)
    return work.finished


def test_unreadable_log_fails_its_directory_in_each_step(tmp_path: Path) -> None:
    """The target directory is not to blame, and the replica goes offline as after each other failed read."""
    reads = next(number for number in count() if move_from_a_disk_that_fails(tmp_path / str(number), number))
    assert reads > 3


def test_move_without_a_descriptor_goes_on_when_one_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # nothing here depends on the disk
    for number in count():
        with SystemCalls(tmp_path) as calls:
            broker, left = Broker(tmp_path / str(number), RealFiles()), number
            log = broker.create()
            for _ in range(3):
                append_large(log)
            log.flush()
            append(log)
            expected = read_all(log)

            def refuse(call: Call) -> int:
                nonlocal left
                left -= call.name == "open"
                return errno.EMFILE if call.name == "open" and left == -1 else 0

            calls.refuse, interrupted = refuse, False
            try:
                broker.move_to()
            except StorageError as error:
                interrupted = "while segments of" in str(error)  # a truncation, before a record is copied
                assert interrupted and broker.move.copied_bytes == 0 and broker.log is log
            calls.refuse = lambda call: 0
            assert all(each.works for each in broker.manager.directories)
            assert read_all(broker.log) == expected
            if not interrupted:
                assert broker.place() == "b" and not (broker.paths[0] / "orders-0").exists()
                assert broker.move.copied_bytes == len(expected), "nothing is copied twice"
                assert not broker.manager.waits_for_deletion(TP)
        if left >= 0:
            break
    assert number > 10


@pytest.mark.parametrize("end", ["deleted", "set aside", "offline"])
def test_move_ends_with_its_log(broker: Broker, end: str) -> None:
    log = broker.create()
    for _ in range(4):
        append_large(log)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 0)
    match end:
        case "deleted":
            broker.manager.delete(TP)
        case "set aside":
            broker.manager.set_aside(TP)
        case "offline":
            broker.manager.take_offline(broker.paths[0], StorageError("burnt"))
    assert TP not in broker.manager.futures
    with pytest.raises(MoveEndedError):
        finish(work)
    broker.move.future.discard()
    assert not list(broker.paths[1].glob("*-future"))
    with suppress(StorageError):  # the log is closed or offline
        log.flush()  # no flush waits for the move


def test_new_topic_of_the_name_never_opens_the_old_log(broker: Broker) -> None:
    append_large(broker.create())
    work = broker.begin()
    advance(work, lambda: broker.move.future.is_current)
    assert (broker.paths[0] / "orders-0").exists(), "the old log is deleted in the next step"
    broker.manager.delete(TP)
    broker.manager.futures.prefer(TP, broker.paths[0])
    log = broker.manager.get_or_create(TP, "later", broker.config)
    assert (log.log_end_offset, broker.place()) == (0, "b")
    finish(work)
    assert not (broker.paths[0] / "orders-0").exists() and append(log) == 0
    broker.manager.delete(TP)
    broker.manager.futures.prefer(TP, broker.paths[0])
    broker.manager.get_or_create(TP, "latest", broker.config)
    assert broker.place() == "a"


def test_start_deletes_the_copy_of_a_partition_that_is_elsewhere_now(broker: Broker) -> None:
    append_large(broker.create())
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 0)
    broker.manager.close()
    manager = LogManager.open(broker.paths, broker.files, 1, "c1", "boot-1")
    manager.open_logs(hosted={})
    assert not list(broker.paths[1].glob("*-future")) and not list(manager.futures)


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


def test_new_log_is_created_in_the_directory_that_was_chosen(broker: Broker) -> None:
    broker.manager.futures.prefer(TP, broker.paths[1])
    broker.manager.get_or_create(TP, "id", broker.config)
    assert broker.place() == "b"
    assert broker.manager.futures.preferred(TP) is None

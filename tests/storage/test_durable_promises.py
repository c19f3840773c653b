"""Each operation that guarantees durability, over the production file layer and the one in memory.

If the power fails within the operation, the old or the new content is on the disk. Once the operation has returned, the
new content is. A file that declares others complete (the clean-shutdown marker, a recovery point) is never on the disk
before them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from storage import partition_metadata
from storage.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, read_offsets
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.directory import lost_logs, meta_properties
from storage.directory.directory_checkpoints import Committed
from storage.file_names import (
    BOOT_ID,
    CLEAN_SHUTDOWN,
    FOUND_EMPTY,
    LOG_SUFFIX,
    SESSION_ID,
    SNAPSHOT_SUFFIX,
    STRAY_SUFFIX,
    file_name,
)
from storage.files import Files
from storage.log import leader_epochs
from storage.log.log import Log
from storage.log_manager import LogManager
from tests.storage.cleaning import clean, keyed
from tests.storage.disks import DURABLE, SEEDS, Disk, disk_of
from tests.storage.logs import NOW, batch, config
from tests.storage.system_calls import Call, SystemCalls
from tidelog.errors import StorageError
from tidelog.model import TopicPartition
from tidelog.records import iter_headers
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.failing_files import FailingFiles, Fault
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT

TP = TopicPartition("orders", 0)
SETTINGS = config(segment_bytes=600, retention_bytes=300)


@pytest.fixture(params=["production", "in memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    yield from disk_of(DURABLE[request.param], tmp_path)


def last_batches(log: Log) -> dict[int, int]:
    """Return the last sequence that the log remembers, by producer id."""
    found = log._appender.producers.producers
    return {each: known.batches[-1].last_sequence for each, known in found.items() if known.batches}


class Broker:
    """A log directory in use, with one log."""

    def __init__(self, disk: Disk, files: Files | None = None) -> None:
        self.disk = disk
        self.root = disk.root / "broker"
        self.files = files or disk.files
        self.manager = LogManager.open((self.root,), self.files, 1, "c1", "boot")
        self.manager.open_logs(lambda topic: SETTINGS)
        self.log: Log = self.manager.get_or_create(TP, "AAAAAAAAAAAAAAAAAAAAAQ", SETTINGS)

    def append(self, count: int = 1, producer_id: int = -1) -> None:
        sequence, epoch = (last_batches(self.log).get(producer_id, -1) + 1, 0) if producer_id >= 0 else (-1, -1)
        for number in range(count):
            following = sequence + number if producer_id >= 0 else -1
            appended = batch(NOW, value=b"v" * 60, producer_id=producer_id, epoch=epoch, sequence=following)
            self.log.append_as_leader(appended, 0, NOW)

    def path(self, name: str) -> Path:
        return self.root / name

    def inside(self, name: str) -> Path:
        return self.log.directory / name


class DurableOperation(NamedTuple):
    """`act` is the operation, `fact` reads its guaranteed result from a disk, and `prepare` runs before both.

    `whole`: at any power failure the result is the old one or the new one, never a mixture.
    """

    act: Callable[[Broker], object]
    fact: Callable[[Broker, Files], object]
    prepare: Callable[[Broker], object] = lambda broker: broker.append(3)
    whole: bool = True


def offsets(name: str) -> Callable[[Broker, Files], object]:
    return lambda broker, disk: read_offsets(disk, broker.path(name)).get(TP)


def content(name: str) -> Callable[[Broker, Files], object]:
    return lambda broker, disk: disk.read(broker.path(name))


def batches(broker: Broker, disk: Files) -> object:
    """Return whether all readable bytes of the log are on the disk under the names of its segments."""
    return {
        segment.base_offset: disk.read(segment.log.path) == broker.files.read(segment.log.path)
        for segment in broker.log.segments
    }


def flushed(broker: Broker) -> None:
    broker.append(8)
    broker.log.flush()
    broker.manager.checkpoint_recovery_points()


def compacted(broker: Broker) -> None:
    """Compact the log up to its last segment."""
    broker.log.config = config(cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    for number in range(8):
        broker.log.append_as_leader(keyed((b"k", b"%d" % number)), 0, NOW)
        broker.log.roll(NOW)
    broker.log.flush()
    end_offset = clean(broker.log, files=broker.files)
    broker.log.flush(rolled_only=True)
    assert broker.manager.record_cleaned(TP, broker.log, end_offset, broker.log.truncation_count)


def drop_oldest(broker: Broker) -> None:
    for segment in broker.log.delete_old_segments(NOW, broker.log.log_end_offset):
        segment.delete()
    broker.log.flush()


OPERATIONS = {
    "flush": DurableOperation(lambda broker: broker.log.flush(), batches, lambda broker: broker.append(8), whole=False),
    "flush of rolled segments": DurableOperation(
        lambda broker: broker.log.flush(rolled_only=True),
        lambda broker, disk: disk.read(broker.log.segments[0].log.path),
        lambda broker: broker.append(8),
        whole=False,
    ),
    "leader epochs, with a flush": DurableOperation(
        lambda broker: broker.log.flush(),
        lambda broker, disk: disk.read(broker.inside(leader_epochs.FILE_NAME)),
        lambda broker: (broker.append(), broker.log.assign_leader_epoch(3), broker.append()),
        whole=False,
    ),
    "recovery points": DurableOperation(
        lambda broker: broker.manager.checkpoint_recovery_points(),
        offsets(RECOVERY_POINTS),
        lambda broker: (broker.append(3), broker.log.flush()),
    ),
    "high watermarks": DurableOperation(
        lambda broker: broker.manager.checkpoint_high_watermarks({TP: Committed.of(broker.log, 2)}),
        offsets(HIGH_WATERMARKS),
    ),
    "log starts": DurableOperation(
        lambda broker: (broker.log.raise_log_start(2), broker.manager.checkpoint_log_starts()), offsets(LOG_STARTS)
    ),
    "cleaner offset": DurableOperation(
        lambda broker: broker.manager.record_cleaned(TP, broker.log, 2, broker.log.truncation_count),
        offsets(CLEANER_OFFSETS),
    ),
    "lost logs": DurableOperation(
        lambda broker: lost_logs.write(broker.files, broker.root, {TP: "AAAAAAAAAAAAAAAAAAAAAQ"}),
        content(lost_logs.FILE_NAME),
    ),
    "session": DurableOperation(lambda broker: broker.manager.write_session("0x17"), content(SESSION_ID)),
    "possible loss": DurableOperation(
        lambda broker: broker.manager.directories[0].data_loss_marker.record_loss(), content(BOOT_ID)
    ),
    "loss dealt with": DurableOperation(
        lambda broker: broker.manager.clear_possibly_short(),
        content(BOOT_ID),
        lambda broker: broker.manager.directories[0].data_loss_marker.record_loss(),
    ),
    "recovery point, lowered by a truncation": DurableOperation(
        lambda broker: broker.log.truncate_to(2), offsets(RECOVERY_POINTS), flushed
    ),
    "recovery point, lowered for a restarted log": DurableOperation(
        lambda broker: broker.log.truncate_fully_and_start_at(2), offsets(RECOVERY_POINTS), flushed
    ),
    "checkpoints of a deleted log": DurableOperation(
        lambda broker: broker.manager.delete(TP), offsets(RECOVERY_POINTS), flushed
    ),
    "cleaner offset of a deleted log": DurableOperation(
        lambda broker: broker.manager.delete(TP), offsets(CLEANER_OFFSETS), compacted
    ),
    "segments removed by retention, with a flush": DurableOperation(
        drop_oldest, lambda broker, disk: disk.exists(broker.inside(file_name(0, LOG_SUFFIX))), flushed
    ),
    "clean shutdown": DurableOperation(
        lambda broker: broker.manager.close(), lambda broker, disk: disk.exists(broker.path(CLEAN_SHUTDOWN))
    ),
    "producers, at a clean shutdown": DurableOperation(
        lambda broker: broker.manager.close(),
        lambda broker, disk: disk.read(broker.inside(file_name(3, SNAPSHOT_SUFFIX))),
        lambda broker: broker.append(3, producer_id=7),
    ),
    "producers, at a clean shutdown behind an empty segment": DurableOperation(
        lambda broker: broker.manager.close(),
        lambda broker, disk: disk.read(broker.inside(file_name(3, SNAPSHOT_SUFFIX))),
        lambda broker: (broker.append(3, producer_id=7), broker.log.roll(NOW)),
        whole=False,
    ),
    "start after a clean shutdown": DurableOperation(
        lambda broker: Broker(broker.disk, broker.files),
        lambda broker, disk: disk.exists(broker.path(CLEAN_SHUTDOWN)),
        lambda broker: broker.manager.close(),
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_keeps_the_old_content_until_the_new_one_is_on_the_disk(disk: Disk, name: str) -> None:
    operation, broker = OPERATIONS[name], Broker(disk)
    operation.prepare(broker)
    before = operation.fact(broker, disk.after())
    images = disk.images(lambda: operation.act(broker))
    after = operation.fact(broker, disk.after())
    assert after == operation.fact(broker, broker.files), "every readable record is on the disk"
    assert after != before
    for choice in map(Random, SEEDS):
        assert operation.fact(broker, disk.after(choice)) == after
    if operation.whole:
        assert {repr(operation.fact(broker, image)) for image in images} == {repr(before), repr(after)}


def test_first_start_writes_found_empty_before_meta_properties(disk: Disk) -> None:
    brokers: list[Broker] = []
    images = disk.images(lambda: brokers.append(Broker(disk)))
    (broker,) = brokers
    whose, empty = broker.path(meta_properties.FILE_NAME), broker.path(FOUND_EMPTY)
    assert disk.after().exists(whose)
    for image in images:
        if image.exists(whose):
            assert meta_properties.check(broker.root, image, 1, "c1")
            assert image.exists(empty) or image.exists(broker.path(BOOT_ID))


# --- files that declare others complete ----------------------------------------------------------


def few_batches(broker: Broker) -> None:
    broker.append(2, producer_id=7)


def several_segments(broker: Broker) -> None:
    broker.append(20, producer_id=7)


def empty_active_segment(broker: Broker) -> None:
    broker.append(3, producer_id=7)
    broker.log.roll(NOW)


def rolled_behind_a_flush(broker: Broker) -> None:
    """Flush everything, then roll, which writes a snapshot and begins a segment. A later flush has nothing to do."""
    broker.append(3, producer_id=7)
    broker.log.flush()
    broker.log.roll(NOW)


def producers_that_only_the_snapshot_knows(broker: Broker) -> None:
    broker.append(3, producer_id=7)
    broker.append(20)
    drop_oldest(broker)
    assert broker.log.log_start_offset > 3


def truncated(broker: Broker) -> None:
    broker.append(20, producer_id=7)
    broker.log.flush()
    broker.log.truncate_to(11)


def trimmed(broker: Broker) -> None:
    broker.append(8, producer_id=7)
    broker.log.raise_log_start(5)


def compacted_log(broker: Broker) -> None:
    broker.append(3, producer_id=7)
    compacted(broker)


def covered_by_marker(name: str, log: Log) -> bool:
    """Earlier snapshots, indexes of sealed segments and topic ids are excluded, because their damage is noticed."""
    if name.endswith(SNAPSHOT_SUFFIX):
        return name == file_name(log.log_end_offset, SNAPSHOT_SUFFIX)
    if name.endswith("index"):
        return name.startswith(file_name(log.segment_base_offsets[-1], ""))
    return name != partition_metadata.FILE_NAME


@pytest.mark.parametrize(
    "work",
    [
        few_batches,
        several_segments,
        empty_active_segment,
        rolled_behind_a_flush,
        producers_that_only_the_snapshot_knows,
        truncated,
        trimmed,
        compacted_log,
    ],
)
def test_clean_marker_is_written_after_everything_that_it_covers(disk: Disk, work: Callable[[Broker], object]) -> None:
    broker = Broker(disk)
    work(broker)
    log = broker.log
    images = disk.images(lambda: broker.manager.close())
    images += [disk.after(), *(disk.after(Random(seed)) for seed in SEEDS)]
    assert disk.after().exists(broker.path(CLEAN_SHUTDOWN))
    marked = [image for image in images if image.exists(broker.path(CLEAN_SHUTDOWN))]
    for image in marked:
        for name in disk.files.names(log.directory):
            if covered_by_marker(name, log):
                assert image.read(log.directory / name) == disk.files.read(log.directory / name), name
        again = Broker(disk, image)
        assert (again.log.log_start_offset, again.log.log_end_offset) == (log.log_start_offset, log.log_end_offset)
        assert again.log.recovery_point == log.log_end_offset
        assert last_batches(again.log) == last_batches(log)
        again.manager.close(clean=False)


def test_recovery_point_on_the_disk_never_passes_the_bytes_on_the_disk(disk: Disk) -> None:
    broker = Broker(disk)
    taken: list[CrashableFiles] = []
    for round_ in range(3):
        broker.append(4 + round_, producer_id=7)
        if round_ == 1:
            broker.log.flush(rolled_only=True)
        else:
            broker.log.flush()
        taken += disk.images(lambda: broker.manager.checkpoint_recovery_points())
    for image in (*taken, disk.after(FORGOTTEN)):
        recorded = read_offsets(image, broker.path(RECOVERY_POINTS)).get(TP, 0)
        assert Broker(disk, image).log.log_end_offset >= recorded


def test_damaged_tail_is_flushed_aside_before_the_truncation(disk: Disk) -> None:
    broker = Broker(disk)
    flushed(broker)
    broker.manager.close(clean=False)
    path = broker.log.segments[-1].log.path
    whole = disk.files.read(path)
    assert whole is not None
    broker.files.open(path).write(80, (b"damage",))
    broker.files.open(path).fsync()
    damaged = disk.files.read(path)
    assert damaged is not None
    for image in disk.images(lambda: Broker(disk)):
        strays = [name for name in image.names(path.parent) if name.endswith(STRAY_SUFFIX)]
        kept = [image.read(path), *(image.read(path.parent / name) for name in strays)]
        assert damaged in kept, "the bytes from the damage on are in the log, or set aside"


@pytest.mark.parametrize("segments", [1, 3], ids=["in the active segment", "with segments behind it"])
def test_flushed_bytes_after_damage_are_copied_before_the_truncation(disk: Disk, segments: int) -> None:
    """A crash does not explain such damage, so the data after it must survive every later crash as well."""
    broker = Broker(disk)
    for number in range(segments):
        broker.append(4)
        if number < segments - 1:
            broker.log.roll(NOW)
    broker.log.flush()
    broker.manager.checkpoint_recovery_points()
    broker.manager.close(clean=False)
    path = broker.inside(file_name(0, LOG_SUFFIX))
    file = disk.files.open(path)
    file.write(200, (b"damage",))
    file.fsync()
    file.close()
    written = {name: disk.files.read(broker.log.directory / name) or b"" for name in disk.files.names(path.parent)}
    logs = {name: data for name, data in written.items() if name.endswith(LOG_SUFFIX)}
    images = disk.images(lambda: Broker(disk))
    images += [disk.after(), *(disk.after(Random(seed)) for seed in SEEDS)]
    for image in images:
        found = {name: image.read(path.parent / name) or b"" for name in image.names(path.parent)}
        kept = b"".join(data for name, data in found.items() if name.endswith(STRAY_SUFFIX))
        for name, data in logs.items():
            left = found.get(name, b"")
            assert data.startswith(left) and data[len(left) :] in kept, f"{name} was cut before its rest was kept"


# --- work during a flush -------------------------------------------------------------------------


def append_more(broker: Broker) -> None:
    broker.append(3)


def roll_and_append(broker: Broker) -> None:
    broker.log.roll(NOW)
    broker.append(2)


def cut_and_append(broker: Broker) -> None:
    broker.log.truncate_to(9)
    broker.append(5, producer_id=9)


def begin_an_epoch(broker: Broker) -> None:
    broker.log.assign_leader_epoch(4)
    broker.log.append_as_leader(batch(NOW, value=b"of a later epoch"), 4, NOW)


def retire_oldest(broker: Broker) -> None:
    """Retention removes segments from the log; their files stay for a while under other names."""
    assert broker.log.delete_old_segments(NOW, broker.log.log_end_offset)


def content_between(log: Log, offset: int, end_offset: int) -> bytes:
    found = b""
    while offset < end_offset:
        data = bytes(log.read(offset, 1 << 20, end_offset))
        found += data
        offset = [header.next_offset for _, header in iter_headers(memoryview(data))][-1]
    return found


def assert_what_is_noted_is_on_the_disk(broker: Broker) -> None:
    """All bytes below the recovery point, and the checkpoints, survive a power failure."""
    log, disk = broker.log, broker.disk
    begin, synced_to = log.log_start_offset, log.recovery_point
    for recorded in (False, True):
        if recorded:
            broker.manager.checkpoint_recovery_points()
            broker.manager.checkpoint_log_starts()
        for choice in (FORGOTTEN, *map(Random, SEEDS)):
            image = disk.after(choice)
            again = Broker(disk, image).log
            assert again.log_end_offset >= max(synced_to, read_offsets(image, broker.path(RECOVERY_POINTS)).get(TP, 0))
            if synced_to > begin:
                assert content_between(again, begin, synced_to) == content_between(log, begin, synced_to)
                assert again.log_start_offset == begin or not recorded


def run_beside(broker: Broker, work: Callable[[], object], act: Callable[[], object], call: str, number: int) -> bool:
    """Do the work, and run `act` within call number `number` of that name. Return whether such a call exists."""
    power = broker.disk.power
    assert isinstance(power, CrashableFiles)
    begun, left = len(power.mutations), number

    def boundary() -> None:
        nonlocal left
        if power.mutations[-1].startswith(call):
            left -= 1
            if left == -1:
                power.boundary = lambda: None
                act()

    power.boundary = boundary
    work()
    power.boundary = lambda: None
    assert len(power.mutations) > begun
    return left < 0


@pytest.mark.parametrize("act", [append_more, roll_and_append, cut_and_append, begin_an_epoch, retire_oldest])
@pytest.mark.parametrize("flushed_before", [False, True], ids=["never flushed", "flushed before"])
def test_flush_covers_only_writes_from_before_each_fsync(act: Callable[[Broker], object], flushed_before: bool) -> None:
    for number in count():
        for disk in disk_of(CrashableFiles, Path("/")):
            broker = Broker(disk)
            broker.append(12)
            if flushed_before:
                broker.log.flush()
                broker.append(8)
            happened = run_beside(broker, broker.log.flush, partial(act, broker), "sync", number)
            assert_what_is_noted_is_on_the_disk(broker)
        if not happened:
            break
    assert number > 2


def test_flush_during_renames_does_not_cover_them() -> None:
    for number in count():
        for disk in disk_of(CrashableFiles, Path("/")):
            broker = Broker(disk)
            flushed(broker)
            broker.append(12)
            happened = run_beside(broker, partial(retire_oldest, broker), broker.log.flush, "rename 0", number)
            assert_what_is_noted_is_on_the_disk(broker)
            broker.log.flush()
            assert_what_is_noted_is_on_the_disk(broker)
        if not happened:
            break
    assert number > 2


# --- no descriptor is left ---------------------------------------------------------------------------


def refuse_one_open(broker: Broker, number: int) -> Callable[[], bool]:
    """Let the open number `number` fail with EMFILE.

    Return a function that ends this and reports failures.
    """
    calls, left = broker.disk.power, number
    assert isinstance(calls, SystemCalls)

    def refuse(call: Call) -> int:
        nonlocal left
        left -= call.name == "open"
        return errno.EMFILE if call.name == "open" and left == -1 else 0

    def end() -> bool:
        calls.refuse = lambda call: 0
        return left < 0

    calls.refuse = refuse
    return end


def test_flush_without_a_descriptor_is_completed_by_the_next_one(tmp_path: Path) -> None:
    """No call was attempted, so no name, index or leader epoch counts as flushed."""
    for number in count():
        for disk in disk_of(DURABLE["production"], tmp_path / str(number)):
            broker = Broker(disk)
            broker.append(5)
            broker.log.assign_leader_epoch(3)
            broker.append(5)
            refused = refuse_one_open(broker, number)
            with suppress(OutOfDescriptorsError):
                broker.log.flush()
            happened = refused()
            broker.log.flush()
            assert_what_is_noted_is_on_the_disk(broker)
            epochs = disk.after().read(broker.inside(leader_epochs.FILE_NAME))
            assert epochs == disk.files.read(broker.inside(leader_epochs.FILE_NAME))
        if not happened:
            break
    assert number > 5


#: Operations that may be repeated if they got no descriptor.
REPEATED = (
    "flush",
    "flush of rolled segments",
    "leader epochs, with a flush",
    "recovery points",
    "high watermarks",
    "log starts",
    "cleaner offset",
    "lost logs",
    "possible loss",
    "loss dealt with",
    "segments removed by retention, with a flush",
    "recovery point, lowered by a truncation",
    "recovery point, lowered for a restarted log",
)


def undisturbed_fact(operation: DurableOperation, directory: Path) -> object:
    """Return the result of the operation on a disk of its own, without a failure."""
    for disk in disk_of(DURABLE["production"], directory):
        broker = Broker(disk)
        operation.prepare(broker)
        operation.act(broker)
        return operation.fact(broker, disk.files)
    raise AssertionError("there is a disk")


@pytest.mark.parametrize("name", REPEATED)
def test_operation_without_a_descriptor_succeeds_when_repeated(name: str, tmp_path: Path) -> None:
    operation = OPERATIONS[name]
    expected = undisturbed_fact(operation, tmp_path / "undisturbed")
    for number in count():
        for disk in disk_of(DURABLE["production"], tmp_path / str(number)):
            broker = Broker(disk)
            operation.prepare(broker)
            refused, interrupted = refuse_one_open(broker, number), False
            try:
                operation.act(broker)
            except OutOfDescriptorsError:
                pass
            except StorageError as error:
                interrupted = "while segments of" in str(error)  # the next start finishes the truncation
                assert interrupted
            happened = refused()
            if not interrupted:
                operation.act(broker)
                visible, durable = operation.fact(broker, disk.files), operation.fact(broker, disk.after())
                assert durable == visible == expected, f"open number {number}"
        if not happened:
            break
    assert number > 0


def test_close_without_descriptors_covers_no_unflushed_data(tmp_path: Path) -> None:
    for number in count():
        for disk in disk_of(DURABLE["production"], tmp_path / str(number)):
            broker = Broker(disk)
            broker.append(12, producer_id=7)
            known, end_offset = last_batches(broker.log), broker.log.log_end_offset
            refused = refuse_one_open(broker, number)
            with suppress(StorageError):
                broker.manager.close()
            happened = refused()
            if disk.after().exists(broker.path(CLEAN_SHUTDOWN)):
                again = Broker(disk, disk.after()).log
                assert (again.log_end_offset, again.recovery_point) == (end_offset, end_offset)
                assert last_batches(again) == known
        if not happened:
            break
    assert number > 10


# --- failed flushes ------------------------------------------------------------------------------


@pytest.mark.parametrize("rolled", [False, True], ids=["written at the end", "written by a roll"])
def test_later_fsync_does_not_repair_a_failed_snapshot_flush(rolled: bool) -> None:
    """The kernel reports a failed fsync once; a later one succeeds and writes nothing to the disk."""
    memory = CrashableFiles()
    for disk in disk_of(lambda: memory, Path("/")):
        broker = Broker(disk, FailingFiles(memory))
        producers_that_only_the_snapshot_knows(broker)
        known = last_batches(broker.log)
        if rolled:
            broker.log.roll(NOW)
        assert isinstance(broker.files, FailingFiles)
        broker.files.fail(Fault.SYNC_ERROR, matching=lambda path: SNAPSHOT_SUFFIX in path.name)
        with pytest.raises(StorageError):
            broker.manager.close()
        broker.files.end()
        second = Broker(disk, memory)
        assert last_batches(second.log) == known
        second.manager.close()
        assert last_batches(Broker(disk, disk.after()).log) == known


@pytest.mark.parametrize("errors", [1, 2, 99], ids=["once", "twice", "for ever"])
def test_log_with_a_failed_flush_is_never_flushed_again(tmp_path: Path, errors: int) -> None:
    for disk in disk_of(DURABLE["production"], tmp_path):
        broker = Broker(disk)
        broker.append(8, producer_id=7)
        assert isinstance(disk.power, SystemCalls)
        calls, failed = disk.power, []

        def refuse(call: Call) -> int:
            if call.name != "fsync" or call.path.suffix != LOG_SUFFIX or len(failed) >= errors:  # noqa: B023
                return 0
            failed.append(call.path)  # noqa: B023
            return errno.EIO

        calls.refuse = refuse
        for _ in range(3):
            with pytest.raises(StorageError):
                broker.log.flush()
        assert len(failed) == 1
        broker.manager.checkpoint_recovery_points()
        broker.manager.close()
        assert [call for call in calls.made if str(call) == f"fsync {failed[0].name}"] == [Call("fsync", failed[0])]
        assert read_offsets(broker.files, broker.path(RECOVERY_POINTS)).get(TP, 0) == 0
        assert not broker.files.exists(broker.path(BOOT_ID)), "the next process writes everything again"
        assert not broker.files.exists(broker.path(CLEAN_SHUTDOWN))


@pytest.mark.parametrize("cut", [False, True], ids=["only deleted", "truncated after that"])
def test_retention_keeps_producers_despite_a_damaged_snapshot(disk: Disk, cut: bool) -> None:
    """The batches replaced the snapshot; a kill without these batches leaves only a snapshot again."""
    broker = Broker(disk)
    broker.append(3, producer_id=7)
    broker.log.roll(NOW)
    broker.append(20)
    broker.log.flush()
    again = Broker(disk, disk.after())  # no snapshot was flushed
    assert last_batches(again.log) == {7: 2}
    drop_oldest(again)
    assert again.log.segment_base_offsets[0] > 3
    if cut:
        again.log.truncate_to(again.log.log_end_offset - 1)
    killed = again.files
    assert isinstance(killed, CrashableFiles)
    assert last_batches(Broker(disk, killed.crash(KEPT)).log) == {7: 2}


def test_unrecorded_flush_failure_prevents_the_clean_marker(tmp_path: Path) -> None:
    for disk in disk_of(DURABLE["production"], tmp_path):
        broker = Broker(disk)
        broker.append(8, producer_id=7)
        assert isinstance(disk.power, SystemCalls)
        calls = disk.power

        def refuse(call: Call) -> int:
            failing = (call.name == "fsync" and call.path.suffix == LOG_SUFFIX) or call.name == "unlink"
            return errno.EIO if failing else 0

        calls.refuse = refuse
        with pytest.raises(StorageError):
            broker.log.flush()
        calls.refuse = lambda call: 0
        broker.manager.close()
        assert not broker.files.exists(broker.path(CLEAN_SHUTDOWN))

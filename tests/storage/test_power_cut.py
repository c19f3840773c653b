"""The power fails within every call that changes a file; the log then opens to its old state or to a prefix of it.

A sequence of steps runs once over a file system that knows which data is flushed. Within every changing call, images
are taken of the possible contents of the disk after a power failure. When the step is over, and its full result is
known, a log is opened from each image. The log must

- hold a run of the batches of one of its earlier states, unmixed, from its log start on;
- hold all of them below the recovery point of that moment;
- agree with itself: indexes, epochs, producers (`soundness`);
- open once more with the same contents, also if the power fails again during recovery, or after a clean close.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from storage.checkpoints import RECOVERY_POINTS, read_offsets
from storage.directory.directory_checkpoints import Committed
from storage.files import Files
from storage.log.log import Log
from storage.log_manager import LogManager
from tests.storage.disks import DURABLE, Disk, disk_of
from tests.storage.logs import NOW, batch, config
from tests.storage.soundness import assert_sound, batches_of, headers_of
from tidelog.model import TopicPartition
from tidelog.records import read_header
from verify.simulation.disks.crashable_files import CrashableFiles, PowerCut
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT

ROOT = Path("/data")
TP = TopicPartition("orders", 0)
SMALL = config(segment_bytes=1500, index_interval_bytes=250, retention_bytes=3000)
PRODUCER = 7


class Moment(NamedTuple):
    """The log after a step: all batches that it held and did not truncate, its start and its recovery point."""

    batches: tuple[bytes, ...]
    log_start_offset: int
    recovery_point: int


class Work:
    """A log in use, and every state that it had."""

    def __init__(self, random: Random, pictures_at_once: int = 2, disk: Disk | None = None) -> None:
        self.random = random
        self.seen: Counter[str] = Counter()
        memory = CrashableFiles()
        self.files, self.root, self.power = disk or Disk(memory, ROOT, memory)
        self.files.make_directory(self.root)
        self.files.fsync_directory(self.root.parent)
        self._images: list[CrashableFiles] = []
        self._pictures_at_once = pictures_at_once
        self._number = 0
        self._sequence = 0
        self._epoch = 0
        self.open()
        self.moments = [self._moment(())]
        self._take_images()

    def open(self) -> None:
        self.manager, self.log = _open(self.files, self.root)

    def step(self, verb: str, amount: int) -> None:
        """Run one step, then check every image taken during it."""
        batches = self.moments[-1].batches
        getattr(self, "_" + verb)(amount)
        kept = (
            ()
            if verb == "restart"
            else tuple(b for b in batches if read_header(b).next_offset <= self.log.log_end_offset)
        )
        self.moments.append(self._moment(kept))
        self._take_images()
        for image in self._images:
            self.check(image)
        self._images.clear()
        self._take_images()

    # --- the steps -----------------------------------------------------------------------------------

    def _append(self, amount: int) -> None:
        for _ in range(amount % 4 + 1):
            self.log.append_as_leader(self._batch(self._sequence), self._epoch, NOW)
            self._sequence += 2

    def _follow(self, amount: int) -> None:
        data, offset = b"", self.log.log_end_offset
        for _ in range(amount % 6 + 1):
            data += self._batch(self._sequence, offset)
            self._sequence += 2
            offset += 2
        self.log.append_as_follower(data)

    def _lead(self, amount: int) -> None:
        self._epoch += amount % 2 + 1
        self.log.assign_leader_epoch(self._epoch)

    def _flush(self, amount: int) -> None:
        self.log.flush()

    def _checkpoint(self, amount: int) -> None:
        self.log.flush(rolled_only=True)
        self.manager.checkpoint_recovery_points()
        self.manager.checkpoint_log_starts()
        self.manager.checkpoint_high_watermarks({TP: Committed.of(self.log, self.log.log_end_offset)})

    def _truncate(self, amount: int) -> None:
        self.log.truncate_to(max(self.log.log_end_offset - amount % 15, 0))
        self._forget_sequence()
        self._epoch += 1

    def _restart(self, amount: int) -> None:
        self.log.truncate_fully_and_start_at(amount)
        self._forget_sequence()

    def _trim(self, amount: int) -> None:
        self.log.raise_log_start(min(self.log.log_start_offset + amount % 9, self.log.log_end_offset))

    def _roll(self, amount: int) -> None:
        self.log.roll(NOW)

    def _retain(self, amount: int) -> None:
        retired = self.log.delete_old_segments(NOW, self.log.log_end_offset)
        if amount % 2:
            for segment in retired:
                segment.delete()

    def _close(self, amount: int) -> None:
        self.manager.close()
        self.open()

    def _batch(self, sequence: int, base_offset: int = 0) -> bytes:
        self._number += 1
        random = self.random
        return batch(
            *(NOW + random.randint(-20, 20) for _ in range(2)),
            value=b"%06d" % self._number * random.choice((1, 10, 60)),
            producer_id=PRODUCER,
            epoch=0,
            sequence=sequence,
            base_offset=base_offset,
            leader_epoch=self._epoch,
        )

    def _forget_sequence(self) -> None:
        producer = self.log._appender.producers.producers.get(PRODUCER)
        self._sequence = (producer.batches[-1].last_sequence + 1) if producer and producer.batches else 0

    # --- the images --------------------------------------------------------------------------------

    def _moment(self, kept: tuple[bytes, ...]) -> Moment:
        held = {read_header(b).base_offset: b for b in kept}
        held |= {read_header(b).base_offset: b for b in batches_of(self.log)}
        end = self.log.log_end_offset
        in_a_row: list[bytes] = []
        for base_offset in sorted(held, reverse=True):
            if read_header(held[base_offset]).next_offset == end:
                in_a_row.append(held[base_offset])
                end = base_offset
        return Moment(tuple(reversed(in_a_row)), self.log.log_start_offset, self.log.recovery_point)

    def _take_images(self) -> None:
        def take() -> None:
            self._images += [self.power.crash(FORGOTTEN), self.power.crash(KEPT)]
            self._images += [self.power.crash(self.random) for _ in range(self._pictures_at_once)]

        self.power.boundary = take if not self._images else lambda: None
        if self._images:
            take()

    def check(self, image: CrashableFiles) -> None:
        self.seen["images"] += 1
        again, closed = image.crash(KEPT), image.crash(KEPT)
        found = self._opened(image)
        # The power fails during recovery, repeatedly. Recovery still ends, and nothing more is lost.
        again.cut = self.random.randrange(40)
        try:
            _open(again, self.root)
        except PowerCut:
            self.seen["cut in recovery"] += 1
        assert self._opened(again.crash(self.random)) == found
        _open(closed, self.root)[0].close()
        assert self._opened(closed.crash(self.random)) == found, "closed in order after its recovery"

    def _opened(self, files: CrashableFiles) -> list[bytes]:
        manager, log = _open(files, self.root)
        found = assert_sound(log)
        self.seen["cut tail"] += bool(log.recovered.cut_bytes)
        self.seen["several segments"] += len(log.segment_base_offsets) > 1
        self.seen["index entries"] += any(len(segment.offset_index) for segment in log._segments)
        before, now = self.moments[-2:] if len(self.moments) > 1 else (self.moments[0], self.moments[0])
        assert log.log_start_offset <= max(moment.log_start_offset for moment in self.moments)
        if found:
            assert any(_is_run(found, moment.batches) for moment in reversed(self.moments)), "a mixture of two states"
        promised = min(before.recovery_point, now.recovery_point)
        begin = max(log.log_start_offset, min(before.log_start_offset, now.log_start_offset))
        for held in set(before.batches) & set(now.batches):
            header = read_header(held)
            if begin < header.next_offset <= promised:
                assert held in found, f"offset {header.base_offset} was flushed"
        base_offset = log.append_as_leader(batch(NOW), log.latest_epoch or 0, NOW).base_offset
        assert base_offset == (headers_of(found)[-1].next_offset if found else log.log_start_offset)
        manager.close(clean=False)
        return found


def _open(files: Files, root: Path = ROOT) -> tuple[LogManager, Log]:
    manager = LogManager.open((root,), files, 1, "c1", "boot")
    manager.open_logs(lambda topic: SMALL)
    log = manager.get_or_create(TP, "id", SMALL)
    assert isinstance(log, Log)
    return manager, log


def _is_run(found: list[bytes], batches: tuple[bytes, ...]) -> bool:
    """Return whether `found` is a run of `batches` without a gap, or ends past them."""
    try:
        start = batches.index(found[0])
    except ValueError:
        return False
    return batches[start : start + len(found)] == tuple(found)


VERBS = ("append", "follow", "lead", "flush", "checkpoint", "truncate", "restart", "trim", "roll", "retain", "close")
SEEDS = range(1, 5)


def work(seed: int, disk: Disk | None = None) -> Counter[str]:
    random = Random(seed)
    log = Work(random, disk=disk)
    try:
        for _ in range(random.randint(3, 14)):
            log.step(random.choice((*VERBS, "append", "append", "follow", "follow")), random.randrange(51))
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    return log.seen


@pytest.mark.parametrize("seed", SEEDS)
def test_power_failure_at_any_call_leaves_a_valid_log_with_flushed_records(seed: int) -> None:
    work(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_work_on_the_production_file_layer_leaves_as_much(seed: int, tmp_path: Path) -> None:
    for disk in disk_of(DURABLE["production"], tmp_path):
        work(seed, disk)


@pytest.mark.slow
@pytest.mark.timeout(600)  # a quarter of a minute on an idle machine
@pytest.mark.parametrize("first", range(1000, 1100, 10))
def test_power_failures_with_many_more_seeds(first: int) -> None:
    seen = sum((work(seed) for seed in range(first, first + 10)), Counter[str]())
    assert all(
        seen[kind] > 100 for kind in ("images", "cut tail", "several segments", "index entries", "cut in recovery")
    ), seen


@pytest.mark.parametrize("cut", [0, 3])
def test_records_appended_after_a_truncation_never_mix_with_removed_ones(cut: int) -> None:
    def append(log: Log, value: bytes) -> None:
        for number in range(20):
            log.append_as_leader(batch(NOW + number, value=value * 150 + b"%d" % number), 0, NOW)

    files = CrashableFiles()
    files.make_directory(ROOT)
    manager, log = _open(files)
    append(log, b"a")
    log.flush()
    manager.checkpoint_recovery_points()
    before = tuple(batches_of(log))
    assert len(log.segments) > 2
    log.truncate_to(cut)
    assert read_offsets(files.crash(FORGOTTEN), ROOT / RECOVERY_POINTS).get(TP, 0) <= cut
    append(log, b"b")
    after = tuple(batches_of(log))
    for seed in range(60):
        _, again = _open(files.crash(Random(seed)))
        found = assert_sound(again)
        assert not found or _is_run(found, before) or _is_run(found, after), f"a mixture, {seed=}"

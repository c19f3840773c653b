"""A cleaned segment replaces others, and the machine may go down between any two steps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from storage.file_names import CLEANED_SUFFIX
from storage.files import Files
from storage.log.log import Log
from storage.segments import segment_swap
from storage.segments.segment import BatchSpan, Segment
from tests.storage.logs import NOW, UnsyncedFiles, batch, config, read_all
from tidelog.errors import StorageError
from tidelog.records import iter_headers
from verify.simulation.disks.crashable_files import CrashableFiles, PowerCut
from verify.simulation.disks.failing_files import FailingFiles, Fault
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT

DIRECTORY = Path("/data/orders-0")
SIZE = len(batch(NOW, key=b"k"))


def open_on(files: Files, directory: Path = DIRECTORY, *, clean: bool = True) -> Log:
    settings = config(segment_bytes=3 * SIZE, index_interval_bytes=1, cleanup_policy="compact")
    return Log.open(directory, settings, files, recovery_point=0, clean=clean)


def append(log: Log, timestamp: int = NOW) -> None:
    log.append_as_leader(batch(timestamp, key=b"k"), 0, NOW)


def filled(files: Files, directory: Path = DIRECTORY) -> Log:
    """Return flushed segments of the offsets 0–2, 3–5, 6–8, and the active one with 9 and 10."""
    log = open_on(files, directory)
    for number in range(11):
        append(log, NOW + number)
    log.flush()
    return log


def clean(log: Log, files: Files, old: Sequence[Segment], *, keep: Sequence[int]) -> Segment:
    """Return a flushed cleaned segment of `old` with the batches at these offsets."""
    cleaned = Segment(log.directory, old[0].base_offset, files, 1, CLEANED_SUFFIX)
    for segment in old:
        data = segment.log.read(0, segment.size)
        for position, header in iter_headers(data):
            if header.base_offset in keep:
                part = data[position : position + header.size_bytes]
                cleaned.append((part,), (BatchSpan(header.last_offset, header.max_timestamp, len(part)),))
    cleaned.seal()
    cleaned.flush()
    return cleaned


def offsets(log: Log) -> list[int]:
    return [header.base_offset for _, header in iter_headers(read_all(log))]


def leftovers(files: Files, directory: Path) -> list[str]:
    return [name for name in files.names(directory) if name.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]


def test_the_cleaned_segment_stands_where_the_old_ones_stood(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    log = filled(files, tmp_path)
    old = log.segments[:2]
    assert log.replace_segments(clean(log, files, old, keep=[1, 5]), old)
    assert log.segment_base_offsets == (0, 6, 9)
    assert offsets(log) == [1, 5, 6, 7, 8, 9, 10]
    assert log.read(0, SIZE) == log.read(1, SIZE)
    assert log.read(2, SIZE) == log.read(5, SIZE)
    assert [log.offset_for_timestamp(NOW + n, 11).offset for n in (0, 2, 5, 6)] == [1, 5, 5, 6]  # type: ignore[union-attr]
    for segment in old:
        segment.delete()
    assert not leftovers(files, tmp_path)
    log.close()
    again = open_on(files, tmp_path)
    assert offsets(again) == [1, 5, 6, 7, 8, 9, 10]
    assert again.segment_base_offsets == (0, 6, 9)


def test_a_segment_of_which_nothing_is_left_is_passed_over(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    log = filled(files, tmp_path)
    for old in (log.segments[:1], log.segments[1:2]):
        log.replace_segments(clean(log, files, old, keep=[]), old)
    assert log.segment_base_offsets == (0, 3, 6, 9)
    assert offsets(log) == [6, 7, 8, 9, 10]
    assert log.read(0, SIZE) == log.read(6, SIZE)
    assert log.offset_for_timestamp(NOW, 11).offset == 6  # type: ignore[union-attr]
    log.close()
    assert offsets(open_on(files, tmp_path)) == [6, 7, 8, 9, 10]


def test_reader_waits_in_a_gap_at_the_log_end(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    log = filled(files, tmp_path)
    log.roll(NOW)
    old = log.segments[3:4]
    log.replace_segments(clean(log, files, old, keep=[9]), old)
    for each in (log, open_on(files, tmp_path)):
        assert offsets(each) == list(range(10))
        assert (each.read(10, SIZE), each.read(11, SIZE)) == (b"", b"")
    append(log)
    assert log.read(10, SIZE) == log.read(11, SIZE) != b""


def test_cleaned_segment_has_the_age_of_the_replaced_ones(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    log = filled(files, tmp_path)
    old = log.segments[:2]
    old[1].log.set_modified_ms(NOW - 77)
    log.replace_segments(clean(log, files, old, keep=[1]), old)
    assert log.segments[0].log.modified_ms() == NOW - 77


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda log: log.truncate_to(4),
        lambda log: log.truncate_to(2),
        lambda log: log.truncate_fully_and_start_at(0),
        lambda log: log.raise_log_start(3) and log.delete_old_segments(NOW, 11),
    ],
    ids=["cut inside", "cut before", "restarted", "oldest deleted"],
)
def test_log_that_changed_during_cleaning_keeps_its_segments(tmp_path: Path, meanwhile: object) -> None:
    files = UnsyncedFiles()
    log = filled(files, tmp_path)
    old = log.segments[:2]
    cleaned = clean(log, files, old, keep=[1, 5])
    meanwhile(log)  # type: ignore[operator]
    while log.log_end_offset < 11:
        append(log)
    before = read_all(log)
    assert not log.replace_segments(cleaned, old)
    assert read_all(log) == before
    log.close()
    assert read_all(open_on(files, tmp_path)) == before
    assert not list(tmp_path.glob("*.cleaned"))


def test_the_active_segment_cannot_be_replaced(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    log = filled(files, tmp_path)
    assert not log.replace_segments(clean(log, files, log.segments[-1:], keep=[9]), log.segments[-1:])
    assert offsets(log) == list(range(11))


@pytest.mark.parametrize("seed", [FORGOTTEN, KEPT, *range(6)])
def test_swap_interrupted_at_any_step_is_finished_or_undone(seed: object) -> None:
    choice = Random(seed) if isinstance(seed, int) else seed
    before, after = list(range(11)), [1, 5, 6, 7, 8, 9, 10]
    outcomes = []
    for cut in range(100):
        files = CrashableFiles()
        log = filled(files)
        old = log.segments[:2]
        cleaned = clean(log, files, old, keep=[1, 5])
        for directory in (DIRECTORY, *DIRECTORY.parents):
            files.fsync_directory(directory)
        files.cut = len(files.mutations) + cut
        try:
            log.replace_segments(cleaned, old)
            for segment in old:
                segment.delete()
        except PowerCut:
            pass
        else:
            break
        survived = files.crash(choice)  # type: ignore[arg-type]
        again = open_on(survived, clean=False)
        outcomes.append(offsets(again))
        assert outcomes[-1] in (before, after), files.mutations[-cut - 1 :]
        assert again.epochs == ((0, 0),)
        assert not leftovers(survived, DIRECTORY)
        assert offsets(open_on(survived, clean=False)) == outcomes[-1]
    assert cut > 12
    assert (after in outcomes) == (seed is not FORGOTTEN)
    assert before in outcomes


def test_swap_interrupted_during_recovery_is_finished_by_the_next_start() -> None:
    for cut in range(100):
        files = CrashableFiles()
        log = filled(files)
        old = log.segments[:2]
        cleaned = clean(log, files, old, keep=[1, 5])
        cleaned.rename(".swap")
        files = files.crash(KEPT)
        files.cut = cut
        try:
            open_on(files, clean=False)
        except PowerCut:
            assert offsets(open_on(files.crash(KEPT), clean=False)) == [1, 5, 6, 7, 8, 9, 10]
        else:
            break
    assert cut > 5


def test_damaged_swap_file_does_not_replace_good_segments() -> None:
    files = CrashableFiles()
    log = filled(files)
    cleaned = clean(log, files, log.segments[:2], keep=[1, 5])
    cleaned.rename(".swap")
    cleaned.log.truncate(cleaned.size - 1)
    assert offsets(open_on(files.crash(KEPT), clean=False)) == list(range(11))


def test_disk_failure_during_a_swap_fails_the_log_and_loses_nothing(tmp_path: Path) -> None:
    disk = FailingFiles(UnsyncedFiles())
    log = filled(disk, tmp_path)
    old = log.segments[:2]
    cleaned = clean(log, disk, old, keep=[1, 5])
    disk.fail(Fault.READ_ONLY, matching=lambda path: path.name.endswith(".log"))
    with pytest.raises(StorageError):
        log.replace_segments(cleaned, old)
    disk.heal()
    with pytest.raises(StorageError, match="offline"):
        append(log)
    log.abandon()
    assert offsets(open_on(UnsyncedFiles(), tmp_path, clean=False))[-6:] == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("content", [b"", b"junk" * 50])
def test_foreign_file_named_like_a_swap_file_replaces_nothing(tmp_path: Path, content: bytes) -> None:
    files = UnsyncedFiles()
    filled(files, tmp_path).close()
    (tmp_path / "00000000000000000003.log.swap").write_bytes(content)
    assert offsets(open_on(files, tmp_path)) == list(range(11))
    assert not leftovers(files, tmp_path)


@pytest.mark.parametrize("old_stands", [False, True])
def test_a_damaged_swap_keeps_no_descriptor(tmp_path: Path, old_stands: bool) -> None:
    if old_stands:
        filled(UnsyncedFiles(), tmp_path).close()
    (tmp_path / f"{0:020d}.log.swap").write_bytes(b"x" * SIZE)
    before = os.listdir("/proc/self/fd")
    segment_swap.recover(tmp_path, UnsyncedFiles(), UnsyncedFiles().names(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == len(before)

"""The files of a segment are created and removed together, including `.txnindex`, which only Kafka writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storage.file_names import CLEANED_SUFFIX, file_name
from storage.log.log import Log
from storage.segments.segment import BatchSpan, Segment
from tests.storage.logs import NOW, UnsyncedFiles, batch, config
from verify.simulation.disks.crashable_files import CrashableFiles, PowerCut
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT, Fate

SIZE = len(batch(NOW, key=b"k"))
SETTINGS = config(segment_bytes=3 * SIZE, cleanup_policy="compact,delete", retention_bytes=3 * SIZE)
TRANSACTIONS = bytes(34)


def open_on(files: UnsyncedFiles | CrashableFiles, directory: Path) -> Log:
    return Log.open(directory, SETTINGS, files, recovery_point=0, clean=True)


def of_kafka(files: UnsyncedFiles | CrashableFiles, directory: Path) -> Log:
    """Return segments of the offsets 0–2, 3–5 and 6–8, each with an aborted transaction."""
    log = open_on(files, directory)
    for _ in range(9):
        log.append_as_leader(batch(NOW, key=b"k"), 0, NOW)
    for base_offset in log.segment_base_offsets:
        files.replace(directory / file_name(base_offset, ".txnindex"), TRANSACTIONS)
    log.flush()
    return log


def names_of(names: list[str], base_offset: int) -> set[str]:
    digits = file_name(base_offset, "")
    return {name.removeprefix(digits) for name in names if name.startswith(digits) and ".snapshot" not in name}


def cleaned(log: Log, files: UnsyncedFiles | CrashableFiles) -> Segment:
    """Return a cleaned segment of the first two segments, with their last batch alone."""
    made = Segment(log.directory, 0, files, 1, CLEANED_SUFFIX)
    made.append((log.segments[1].log.read(2 * SIZE, SIZE),), (BatchSpan(5, NOW, SIZE),))
    made.seal()
    made.flush()
    return made


def retain(log: Log, files: UnsyncedFiles | CrashableFiles) -> None:
    for segment in log.delete_old_segments(NOW, 9):
        segment.delete()


def compact(log: Log, files: UnsyncedFiles | CrashableFiles) -> None:
    replace(log, cleaned(log, files))


def replace(log: Log, made: Segment) -> None:
    old = log.segments[:2]
    assert log.replace_segments(made, old)
    for segment in old:
        segment.delete()


def cut(log: Log, files: UnsyncedFiles | CrashableFiles) -> None:
    log.truncate_to(2)


def begin_anew(log: Log, files: UnsyncedFiles | CrashableFiles) -> None:
    log.truncate_fully_and_start_at(100)


Ending = Callable[[Log, UnsyncedFiles | CrashableFiles], None]
WHOLE = {".log", ".index", ".timeindex"}
OF_KAFKA = WHOLE | {".txnindex"}

ENDINGS = [
    pytest.param(retain, {6: OF_KAFKA}, id="retention"),
    pytest.param(compact, {0: WHOLE, 6: OF_KAFKA}, id="compaction"),
    pytest.param(cut, {0: OF_KAFKA}, id="truncation"),
    pytest.param(begin_anew, {100: WHOLE}, id="a new beginning"),
]


@pytest.mark.parametrize(("end", "left"), ENDINGS)
def test_deleted_segment_leaves_no_file(tmp_path: Path, end: Ending, left: dict[int, set[str]]) -> None:
    files = UnsyncedFiles()
    log = of_kafka(files, tmp_path)
    end(log, files)
    names = files.names(tmp_path)
    assert {base: found for base in (0, 3, 6, 100) if (found := names_of(names, base))} == left


def test_deleted_segment_has_all_its_files_renamed(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    log = of_kafka(files, tmp_path)
    assert len(log.delete_old_segments(NOW, 9)) == 2
    assert names_of(files.names(tmp_path), 0) == {f"{suffix}.deleted" for suffix in OF_KAFKA}


@pytest.mark.parametrize("fate", [FORGOTTEN, KEPT])
@pytest.mark.parametrize("end", [retain, compact, cut, begin_anew])
def test_open_after_a_power_failure_removes_all_files_of_a_segment(end: Ending, fate: Fate) -> None:
    directory = Path("/data/orders-0")
    for step in range(100):
        files = CrashableFiles()
        log = of_kafka(files, directory)
        for each in (directory, *directory.parents):
            files.fsync_directory(each)
        ready = cleaned(log, files) if end is compact else None
        files.cut = len(files.mutations) + step
        try:
            if ready is None:
                end(log, files)
            else:
                replace(log, ready)
        except PowerCut:
            pass
        else:
            break
        survived = files.crash(fate)
        sizes = {segment.base_offset: segment.size for segment in open_on(survived, directory).segments}
        for base_offset in (0, 3, 6):
            found = names_of(survived.names(directory), base_offset)
            ours = sizes.get(base_offset) in (0, SIZE)  # reset, or cleaned
            assert found == (WHOLE if ours else OF_KAFKA if base_offset in sizes else set()), files.mutations[-step:]
    assert step > 5


def test_index_without_its_log_file_is_removed(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    of_kafka(files, tmp_path).close()
    files.replace(tmp_path / file_name(4711, ".txnindex"), TRANSACTIONS)
    open_on(files, tmp_path)
    assert names_of(files.names(tmp_path), 4711) == set()
    assert names_of(files.names(tmp_path), 6) == OF_KAFKA

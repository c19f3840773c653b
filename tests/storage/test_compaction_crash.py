"""The power fails within every call of a round of compaction; the log that opens then has lost no remaining record."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from storage.compaction.cleaner import Cleaning, plan_cleaning
from storage.log.log import Log
from tests.storage.cleaning import COMPACT, clean, put, roll
from tests.storage.logs import NOW, config, records_of
from tests.storage.soundness import assert_sound
from tidelog.errors import StorageError
from tidelog.records import Codec, Record
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.failing_files import FailingFiles, Fault
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT

DIRECTORY = Path("/data/orders-0")
SETTINGS = config(segment_bytes=700, index_interval_bytes=150, **COMPACT)


def opened(files: CrashableFiles, *, clean_shutdown: bool = False) -> Log:
    recovery_point = 10**9 if clean_shutdown else 0
    return Log.open(DIRECTORY, SETTINGS, files, recovery_point=recovery_point, clean=clean_shutdown)


def dirty_log(files: CrashableFiles) -> Log:
    """Return a log of several flushed segments that compaction merges."""
    files.make_directory(DIRECTORY)
    log = opened(files)
    for number in range(18):
        header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number * 2 // 5} if number % 5 == 0 else {}
        value = None if number % 4 == 0 else b"%d" % number * 20
        put(
            log,
            (b"key %d" % (number % 5), value),
            (b"all", b"1"),
            codec=Codec(number % 5),
            timestamp=NOW - number,
            **header,
        )
        if number % 3 == 2:
            roll(log)
    put(log, (b"all", b"active"))
    log.flush()
    files.fsync_directory(DIRECTORY.parent)
    files.fsync_directory(DIRECTORY.parent.parent)
    return log


def records(log: Log) -> list[Record]:
    return [record for record, _ in records_of(log)]


def test_power_failure_leaves_each_segment_old_or_new() -> None:
    files = CrashableFiles()
    log = dirty_log(files)
    before = records(log)
    random = Random(1)
    images: dict[tuple[tuple[str, bytes | None], ...], CrashableFiles] = {}

    def crash() -> None:
        for choice in (KEPT, FORGOTTEN, random, random, random, random):
            image = files.crash(choice)
            content = tuple((name, image.read(DIRECTORY / name)) for name in image.names(DIRECTORY))
            images.setdefault(content, image)  # data flushed long ago is equal at many boundaries

    files.boundary = crash
    end_offset = clean(log, files=files)
    files.boundary = lambda: None
    after = records(log)
    assert len(log.segments) < 7
    assert after != before

    seen: Counter[str] = Counter()
    for image in images.values():
        names = image.names(DIRECTORY)
        seen["cleaned"] += any(name.endswith(".cleaned") for name in names)
        seen["swap"] += any(name.endswith(".swap") for name in names)
        again = opened(image)
        found = records(again)
        assert set(after) <= set(found) <= set(before)
        assert found == sorted(found, key=lambda record: record.offset)
        assert again.log_end_offset == log.log_end_offset
        assert_sound(again, gaps=True)
        assert not [name for name in image.names(DIRECTORY) if name.endswith((".cleaned", ".swap"))]
        seen["old"] += found == before
        seen["new"] += found == after
        seen["some of both"] += found not in (before, after)
        assert clean(again, files=image) == end_offset
        assert records(again) == after
    assert min(seen[fact] for fact in ("cleaned", "swap", "old", "new", "some of both")) > 5, seen


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.WRITE_ERROR, Fault.SYNC_ERROR, Fault.READ_ERROR])
@pytest.mark.parametrize("after", range(2))
def test_a_disk_that_fails_while_segments_are_written_costs_nothing(fault: Fault, after: int) -> None:
    inner = CrashableFiles()
    files = FailingFiles(inner)
    log = dirty_log(inner)
    before = records(log)
    files.fail(fault, matching=lambda path: ".cleaned" in path.name or fault is Fault.READ_ERROR, after=after)
    plan = plan_cleaning(log, 0, NOW, log.log_end_offset)
    assert plan is not None
    with pytest.raises(StorageError):
        Cleaning(plan, files).write_next()
    files.heal()
    assert records(log) == before
    assert not [name for name in inner.names(DIRECTORY) if name.endswith(".cleaned")]
    clean(log, files=inner)
    assert len(records(log)) < len(before)

"""A process is killed while it appends. The page cache survives, so no append that had returned is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.storage.appending_process import batch_at, open_log
from tests.storage.soundness import assert_sound
from tidelog.records import Codec, read_header

PROJECT = Path(__file__).parents[2]


def appended_until_killed(directory: Path, random: Random) -> int:
    """Return the log end that the last append before the kill reported."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.storage.appending_process", str(directory), str(random.randrange(2**32))],
        stdout=subprocess.PIPE,
        cwd=PROJECT,
    )
    assert child.stdout is not None
    first = child.stdout.readline()
    assert first, "it appends"
    killer = threading.Timer(random.random() * 0.15, child.kill)
    killer.start()
    try:
        reported = first + child.stdout.read()
    finally:
        child.kill()
        killer.join()
        child.wait(timeout=30)
        child.stdout.close()
    whole = reported[: reported.rindex(b"\n")].split(b"\n")
    return int(whole[-1])


def survive(directory: Path, rounds: int) -> Counter[str]:
    random = Random(4)
    seen: Counter[str] = Counter()
    for _ in range(rounds):
        promised = appended_until_killed(directory, random)
        manager, log = open_log(directory)
        batches = assert_sound(log)
        assert log.log_start_offset == 0
        assert log.log_end_offset >= promised, "an append had returned"
        for batch in batches:
            header = read_header(batch)
            assert batch == batch_at(header.base_offset)
            seen["compressed batches"] += header.codec != Codec.NONE
        seen["torn tails"] += log.recovered.cut_bytes > 0
        seen["several segments"] += len(log.segments) > 1
        seen["index entries"] += any(len(segment.offset_index) for segment in log.segments)
        manager.close(clean=random.random() < 0.3)
    return seen


def test_appended_records_survive_a_kill(tmp_path: Path) -> None:
    survive(tmp_path, 4)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_appended_records_survive_a_hundred_kills_with_partial_batches(tmp_path: Path) -> None:
    seen = survive(tmp_path, 100)
    print(dict(seen))
    for kind in ("torn tails", "several segments", "index entries", "compressed batches"):
        assert seen[kind] > 0, f"no {kind} in {dict(seen)}"

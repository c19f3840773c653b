"""Apache Kafka's own dump tool reads a log of every kind that we write, and sees a single wrong byte."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

import pytest

from tests.processes.harness.judge import assert_blames, changed, check
from tests.storage.corpus import WRITERS, write_corpus

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_kafka_finds_no_mismatch_in_the_corpus(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    done = check(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    logs = len(list(tmp_path.rglob("*.log")))
    assert logs > 2 * len(WRITERS)
    assert f"{logs:,} files" in next(line for line in done.stdout.splitlines() if line.startswith(".log"))


def test_kafka_finds_a_single_wrong_entry_and_a_flipped_byte(tmp_path: Path) -> None:
    log = next(log for log in write_corpus(tmp_path) if log.name == "codecs-0")
    index, time_index, batches = (
        max(log.glob(f"*{kind}"), key=lambda path: path.stat().st_size) for kind in (".index", ".timeindex", ".log")
    )
    with changed(index, Struct(">ii"), lambda offset, position: (offset - 1, position)):
        assert_blames(check(log), index)
    with changed(time_index, Struct(">qi"), lambda timestamp, offset: (timestamp + 1, offset)):
        assert_blames(check(log), time_index)
    with changed(batches, Struct(">B"), lambda byte: (byte ^ 1,)):
        assert_blames(check(log), batches)
    assert check(log).returncode == 0

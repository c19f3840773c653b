"""Which lines of the dump tool's output are faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check.dump import without_traces_of_compaction


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\ncompacted 0 9\n")
    return tmp_path


def test_gaps_and_emptied_batches_are_faults_unless_the_log_is_compacted(log: Path) -> None:
    traces = ["3 is followed by 7", "Index timestamp: 5, log timestamp: -1"]
    for topic, forgiven in (("compacted-0", True), ("compacted-1", False), ("other-0", False)):
        complaints = [f"Non-consecutive offsets in {log / topic / '0.log'}", *traces]
        assert list(without_traces_of_compaction(complaints)) == ([] if forgiven else complaints)


def test_falling_offsets_and_wrong_times_are_faults_in_a_compacted_log(log: Path) -> None:
    complaints = [
        f"Found timestamp mismatch in :{log / 'compacted-0' / '0.timeindex'}",
        "7 is followed by 3",
        "Index timestamp: 5, log timestamp: 4",
        "anything else",
    ]
    assert list(without_traces_of_compaction(complaints)) == complaints

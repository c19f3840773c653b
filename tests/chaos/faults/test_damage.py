"""What is done to bytes, and what is put back."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from tidelog.chaos.faults.damage import IndexesWrong, IndexesZeroed, _changed_since, _flip
from tidelog.chaos.faults.identities import second_settings
from tidelog.chaos.faults.tools import quietly, run
from tidelog.model import TopicPartition


def test_a_bit_is_flipped_and_flipped_back(tmp_path: Path) -> None:
    segment = tmp_path / "s.log"
    segment.write_bytes(b"abc")
    flipped = _flip(segment, 1, 0x10)
    assert segment.read_bytes() == b"arc"
    assert _flip(segment, 1, 0x10, flipped) == ord("b")
    assert segment.read_bytes() == b"abc"


def test_what_the_broker_has_written_anew_is_left_alone(tmp_path: Path) -> None:
    segment = tmp_path / "s.log"
    segment.write_bytes(b"abc")
    flipped = _flip(segment, 1, 0x10)
    segment.write_bytes(b"abc")
    assert _flip(segment, 1, 0x10, flipped) == -1
    assert segment.read_bytes() == b"abc"
    segment.unlink()
    assert _flip(segment, 1, 0x10, flipped) == -1


def test_wrong_indexes_rise_as_right_ones_do() -> None:
    fault, dice = IndexesWrong(), random.Random(1)
    offsets = fault.damaged(Path("0.index"), bytes(80), dice) or b""
    entries = [(offsets[at : at + 4], offsets[at + 4 : at + 8]) for at in range(0, len(offsets), 8)]
    assert len(entries) == 10
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
    times = fault.damaged(Path("0.timeindex"), bytes(120), dice) or b""
    assert len(times) % 12 == 0
    assert all(times[at : at + 8] < times[at + 12 : at + 20] for at in range(0, len(times) - 12, 12))


def test_a_second_process_shares_nothing_with_the_first_but_its_id() -> None:
    written = {
        "broker_id": 1,
        "log_dirs": ["/a"],
        "zookeeper": "h:1",
        "listeners": ["TIDELOG://127.0.0.1:20001", "REPLICATION://127.0.0.1:20002"],
        "http_listener": "127.0.0.1:20003",
        "log_file": "/log",
        "history_file": "/history",
    }
    text = second_settings(written, "/b")
    assert 'log_dirs = ["/b"]' in text
    assert "broker_id = 1" in text
    assert not any(word in text for word in ("20001", "20002", "20003", '/log"', "history"))


def test_a_command_that_undoes_does_no_harm_where_there_is_nothing_to_undo() -> None:
    assert run(*quietly("rmdir", "/nowhere at all")) == ""
    assert run(*quietly("echo", "$HOME `x`")) == "$HOME `x`\n"


#: What became of a damaged index of a segment that the broker appends to, or of one that it does not.
LATER: dict[str, tuple[bytes, bool, bytes, bool]] = {
    "appended to": (b"damage", True, b"damage, and more", False),
    "deleted, and begun again": (b"", True, b"more", False),
    "built anew, and appended to": (b"damage", True, b"right, and more", True),
    "left as it was": (b"damage", False, b"damage", False),
    "built anew": (b"damage", False, b"right", True),
    "deleted, and built anew": (b"", False, b"right", True),
}


@pytest.mark.parametrize(("damage", "appended", "now", "anew"), LATER.values(), ids=LATER.keys())
def test_what_was_only_appended_to_was_not_written_anew(
    damage: bytes, appended: bool, now: bytes, anew: bool, tmp_path: Path
) -> None:
    path = tmp_path / "0.index"
    path.write_bytes(now)
    assert _changed_since({path: damage}, {path} if appended else set()) == anew


def test_the_indexes_of_the_last_segment_are_those_that_a_broker_appends_to(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    log.mkdir()
    for stem in ("000", "100"):
        for suffix in (".log", ".index", ".timeindex"):
            (log / f"{stem}{suffix}").write_bytes(b"some")
    fault = IndexesZeroed()
    fault.damage(tmp_path, (TopicPartition("t", 0),), random.Random(1))
    assert fault._appended == {log / "100.index", log / "100.timeindex"}
    assert len(fault._damaged) == 4

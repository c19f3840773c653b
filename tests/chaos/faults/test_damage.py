"""Test the damage to files, and its repair."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.chaos.faults.test_noticed import QUIET
from tidelog.history.history_files import read_history
from tidelog.history.operations import Read
from tidelog.model import TopicPartition
from tidelog.records.encode import BatchBuilder
from verify.chaos.fault import PartitionView, Target, View
from verify.chaos.faults import damage
from verify.chaos.faults.damage import BitFlipped, IndexesWrong, IndexesZeroed, _changed_since, _flip
from verify.chaos.faults.identities import second_settings
from verify.chaos.faults.support.tools import quietly, run
from verify.chaos.payload import payload


def test_bit_is_flipped_and_flipped_back(tmp_path: Path) -> None:
    segment = tmp_path / "s.log"
    segment.write_bytes(b"abc")
    flipped = _flip(segment, 1, 0x10)
    assert segment.read_bytes() == b"arc"
    assert _flip(segment, 1, 0x10, flipped) == ord("b")
    assert segment.read_bytes() == b"abc"


def test_rewritten_byte_is_not_flipped_back(tmp_path: Path) -> None:
    segment = tmp_path / "s.log"
    segment.write_bytes(b"abc")
    flipped = _flip(segment, 1, 0x10)
    segment.write_bytes(b"abc")
    assert _flip(segment, 1, 0x10, flipped) == -1
    assert segment.read_bytes() == b"abc"
    segment.unlink()
    assert _flip(segment, 1, 0x10, flipped) == -1


TP = TopicPartition("t", 0)


@dataclass
class Cluster:
    """Broker 1 leads one partition with two segments; no broker process runs."""

    directory: Path
    epochs: Iterator[int] = field(default_factory=lambda: repeat(4))  # of the leader, at each query
    tps: tuple[TopicPartition, ...] = (TP,)
    bootstrap_servers: str = "127.0.0.1:1"

    def __post_init__(self) -> None:
        log = self.directory / "t-0"
        log.mkdir()
        (log / "000.log").write_bytes(batch(0) + batch(1))
        (log / "002.log").write_bytes(batch(2))

    @property
    def histories(self) -> Path:
        return self.directory

    def broker_dir(self, _: int) -> Path:
        return self.directory

    async def view(self) -> View:
        return View(1, {TP: PartitionView(1, next(self.epochs), (1,), 1)})


def batch(offset: int) -> bytes:
    """Return a batch of one record with a value of a run."""
    builder = BatchBuilder(1 << 10)
    assert builder.try_append(5, None, payload(offset, 40)) is not None
    return offset.to_bytes(8, "big") + builder.build()[8:]


class Shown:
    """A consumer that returns this record from every position."""

    def __init__(self, offset: int) -> None:
        self._record = SimpleNamespace(offset=offset, value=payload(offset, 40), timestamp=5)

    async def __aenter__(self) -> Shown:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close nothing."""

    def assign(self, _: object) -> None:
        """Ignore the assignment."""

    def seek(self, *_: object) -> None:
        """Ignore the position."""

    async def poll(self, timeout_ms: int) -> dict[TopicPartition, list[SimpleNamespace]]:
        return {TP: [self._record]}


async def flipped(cluster: Cluster, offset: int, monkeypatch: pytest.MonkeyPatch) -> BitFlipped:
    """Flip a bit of the first or second batch; its reader receives the record at this offset."""
    fault = BitFlipped()
    monkeypatch.setattr(damage, "Consumer", lambda bootstrap_servers: Shown(offset))
    await fault.inject(cast(Target, cluster), random.Random(3))
    assert fault.bit(QUIET) is None
    return fault


def reads_in(directory: Path) -> list[Read]:
    """Return the events of all histories."""
    return [each for path in directory.glob("*.jsonl") for each in read_history(path) if isinstance(each, Read)]


async def test_records_after_a_damaged_batch_are_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = await flipped(Cluster(tmp_path), 2, monkeypatch)
    assert "received offset 2" in (fault.broken(QUIET) or "")


async def test_records_of_an_undamaged_leader_are_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = await flipped(Cluster(tmp_path, epochs=iter([4, 5])), 2, monkeypatch)
    assert fault.broken(QUIET) is None


async def test_reader_of_a_damaged_batch_writes_a_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = await flipped(Cluster(tmp_path), 0, monkeypatch)
    assert fault.broken(QUIET) is None
    (read,) = reads_in(tmp_path)
    assert (read.tp, list(read.offsets), list(read.ids)) == (TP, [0], [0])


def test_wrong_index_entries_increase_like_right_ones() -> None:
    fault, rng = IndexesWrong(), random.Random(1)
    offsets = fault.damaged(Path("0.index"), bytes(80), rng) or b""
    entries = [(offsets[at : at + 4], offsets[at + 4 : at + 8]) for at in range(0, len(offsets), 8)]
    assert len(entries) == 10
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
    times = fault.damaged(Path("0.timeindex"), bytes(120), rng) or b""
    assert len(times) % 12 == 0
    assert all(times[at : at + 8] < times[at + 12 : at + 20] for at in range(0, len(times) - 12, 12))


def test_second_process_shares_only_the_broker_id() -> None:
    written = {
        "broker_id": 1,
        "log_dirs": ["/a"],
        "zookeeper": "h:1",
        "listeners": ["TIDELOG://127.0.0.1:20001", "REPLICATION://127.0.0.1:20002"],
        "http_listener": "127.0.0.1:20003",
        "log_file": "/log",
        "history_file": "/history",
    }
    with ExitStack() as held:
        text = second_settings(written, "/b", held)
    assert 'log_dirs = ["/b"]' in text
    assert "broker_id = 1" in text
    assert not any(word in text for word in ("20001", "20002", "20003", '/log"', "history"))


def test_undo_command_is_harmless_without_a_change() -> None:
    assert run(*quietly("rmdir", "/nowhere at all")) == ""
    assert run(*quietly("echo", "$HOME `x`")) == "$HOME `x`\n"


#: The damaged index of an active or closed segment, and its later content.
LATER: dict[str, tuple[bytes, bool, bytes, bool]] = {
    "appended to": (b"damage", True, b"damage, and more", False),
    "deleted, and begun again": (b"", True, b"more", False),
    "built anew, and appended to": (b"damage", True, b"right, and more", True),
    "left as it was": (b"damage", False, b"damage", False),
    "built anew": (b"damage", False, b"right", True),
    "deleted, and built anew": (b"", False, b"right", True),
}


@pytest.mark.parametrize(("left", "appended", "now", "anew"), LATER.values(), ids=LATER.keys())
def test_appended_file_does_not_count_as_rewritten(
    left: bytes, appended: bool, now: bytes, anew: bool, tmp_path: Path
) -> None:
    path = tmp_path / "0.index"
    path.write_bytes(now)
    assert _changed_since({path: left}, {path} if appended else set()) == anew


def test_indexes_of_the_active_segment_count_as_appended(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    log.mkdir()
    for stem in ("000", "100"):
        for suffix in (".log", ".index", ".timeindex"):
            (log / f"{stem}{suffix}").write_bytes(b"some")
    fault = IndexesZeroed()
    fault.damage(tmp_path, (TP,), random.Random(1))
    assert fault._appended == {log / "100.index", log / "100.timeindex"}
    assert len(fault._damaged) == 4

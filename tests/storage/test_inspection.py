"""The inspection of valid files, and the damage that it reports with its position."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from storage.inspection import Damage, Fact, files_below, inspect
from tests.storage.kafka_written.archive import LOGS, unpack
from tests.storage.worked_example import INDEX, LOG, SNAPSHOT, TIME_INDEX, write_worked_example
from tidelog.model import NO_TIMESTAMP
from tidelog.records import MarkerKind, encode_batch, encode_control_batch

KAFKA_WRITTEN = Path(__file__).parent / "kafka_written"


def damage_in(file: Path) -> list[Damage]:
    return [finding for finding in inspect(file) if isinstance(finding, Damage)]


def cut(size: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:size]


def flip(position: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def put(position: int, new: str) -> Callable[[bytes], bytes]:
    piece = bytes.fromhex(new)
    return lambda content: content[:position] + piece + content[position + len(piece) :]


@dataclass(frozen=True)
class Case:
    """A file, a change to it, and the reported damage."""

    name: str
    file: str
    change: Callable[[bytes], bytes]
    position: int
    reported: str


CASES = [
    Case("flipped bit in a record", LOG, flip(215 + 65), 215, "CRC"),
    Case("torn tail", LOG, cut(420), 353, "truncated: the batch has 71 bytes, but only 67 are left"),
    Case("torn header", LOG, cut(400), 353, "truncated: 47 bytes are fewer than a batch header has"),
    Case("zeros at the end", LOG, lambda content: content + bytes(5000), 424, "5000 bytes of zeros"),
    Case("noise at the end", LOG, lambda content: content + b"\xff" * 100, 424, "no batch begins here"),
    Case("offsets going back", LOG, put(146, "0000000000000001"), 146, "offset 1 is lower than 3"),
    Case("another magic", LOG, put(77 + 16, "01"), 77, "no batch begins here: message format 1"),
    Case("absurd length", LOG, put(77 + 8, "7fffffff"), 77, "truncated: the batch has 2147483659 bytes"),
    Case("wrong offset", INDEX, put(8, "00000004"), 8, "position 284, but the batch there ends with offset 5"),
    Case("wrong position", INDEX, put(4, "00000093"), 0, "but no batch begins there"),
    Case("position past the end", INDEX, put(12, "00001000"), 8, "the .log has only 424 bytes"),
    Case("positions before the file", INDEX, lambda it: put(12, "fffffff8")(put(4, "fffffff0")(it)), 0, "not above"),
    Case("entries out of order", INDEX, put(8, "00000002"), 8, "is not above the one before it"),
    Case("half an entry", INDEX, cut(12), 8, "4 bytes at the end are not a whole entry"),
    Case("wrong timestamp", TIME_INDEX, put(7, "ec"), 0, "timestamp 1004 of offset 1"),
    Case("an offset that is not there", TIME_INDEX, put(20, "00000009"), 12, "the .log has no such offset"),
    Case("time goes back", TIME_INDEX, put(19, "01"), 12, "timestamp 769 and offset 4"),
    Case("half a time entry", TIME_INDEX, cut(20), 12, "8 bytes at the end"),
    Case("flipped bit in a snapshot", SNAPSHOT, flip(30), 2, "CRC"),
    Case("a snapshot cut off", SNAPSHOT, cut(5), 0, "5 bytes are too few for a snapshot"),
    Case("another snapshot version", SNAPSHOT, put(0, "0002"), 0, "version 2 instead of 1"),
    Case(
        "epochs out of order",
        "leader-epoch-checkpoint",
        lambda _: b"0\n2\n5 0\n4 9\n",
        8,
        "is not above the entry before it",
    ),
    Case("truncated checkpoint", "leader-epoch-checkpoint", cut(7), 4, "truncated"),
    Case("a line too few", "leader-epoch-checkpoint", lambda _: b"0\n2\n5 0\n", 8, "1 entries, but the second"),
    Case("another version", "leader-epoch-checkpoint", lambda _: b"1\n0\n", 0, "version '1' instead of 0"),
    Case("an empty checkpoint", "leader-epoch-checkpoint", cut(0), 0, "truncated"),
    Case("half a topic id", "partition.metadata", cut(30), 0, "not a topic id"),
    Case("another topic id", "partition.metadata", lambda data: data.replace(b"AQ", b"QA"), 0, "checksum"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_damage_is_reported_with_its_position(tmp_path: Path, case: Case) -> None:
    file = write_worked_example(tmp_path) / case.file
    assert damage_in(file) == []
    file.write_bytes(case.change(file.read_bytes()))
    first = damage_in(file)[0]
    assert first.position == case.position
    assert case.reported in first.reason


def test_batches_after_a_damaged_one_are_shown(tmp_path: Path) -> None:
    file = write_worked_example(tmp_path) / LOG
    file.write_bytes(flip(70)(file.read_bytes()))
    assert [type(finding) for finding in inspect(file)] == [Fact, Damage, *[Fact] * 5]


@pytest.mark.parametrize("archive", ["clean", "killed"])
def test_files_written_by_kafka_have_no_damage(tmp_path: Path, archive: str) -> None:
    logs = unpack(KAFKA_WRITTEN / f"{archive}.tar.xz", tmp_path) / LOGS
    found = [finding for file in files_below(logs) for finding in inspect(file, records=True)]
    assert not [finding for finding in found if isinstance(finding, Damage)]
    reported = {fact.what for fact in found if isinstance(fact, Fact)}
    assert {"batch", "record", "marker", "entry", "producer", "offset", "epoch", "topic", "identity"} <= reported
    assert ("padding" in reported) == (archive == "killed")


def test_record_without_a_timestamp_is_shown_without_one(tmp_path: Path) -> None:
    marker = encode_control_batch(
        MarkerKind.ABORT, producer_id=8, producer_epoch=0, timestamp_ms=NO_TIMESTAMP, coordinator_epoch=3, base_offset=2
    )
    (tmp_path / LOG).write_bytes(encode_batch([(NO_TIMESTAMP, None, b"v", ()), (5, None, b"v", ())]) + marker)
    found = [finding for finding in inspect(tmp_path / LOG, records=True) if isinstance(finding, Fact)]
    times = [(fact.what, fact.fields["timestamp"]) for fact in found if fact.what in ("record", "marker")]
    assert times == [("record", None), ("record", 5), ("marker", None)]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", [LOG, INDEX, TIME_INDEX])
def test_zeros_are_gone_through_once_and_fast(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 256 << 20)
    assert "268435456" in str(list(inspect(tmp_path / name)))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", [INDEX, TIME_INDEX])
def test_zeros_before_an_entry_are_scanned_once(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(600_000) + b"\x01" * 24)
    found = list(inspect(tmp_path / name))
    assert any(isinstance(finding, Damage) for finding in found)
    assert any(isinstance(finding, Fact) and finding.fields["position"] == 600_000 for finding in found)

"""`tidelog dump`, installed: what it shows of sound files, and where it says that a file is damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes.harness.command import TIDELOG, Shell
from tests.storage.kafka_written.archive import LOGS, unpack
from tests.storage.logs import batch, open_log

STEM = "00000000000000000000"
LOG, INDEX, TIME_INDEX, SNAPSHOT = (
    f"{STEM}.log",
    f"{STEM}.index",
    f"{STEM}.timeindex",
    "00000000000000000007.snapshot",
)
KAFKA_WRITTEN = Path(__file__).parents[1] / "storage" / "kafka_written"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A user with the log of the worked example in docs/FORMAT.md: batches at 0, 77, 146, 215, 284 and 353."""
    log = open_log(tmp_path / "orders-0", index_interval_bytes=100)
    for stamps in ((1000, 1003), (1001,), (1002,), (1007,), (1005,)):
        log.append_as_leader(batch(*stamps), 5, 1000)
    log.append_as_leader(batch(1006, value=b"six", producer_id=9, epoch=1, sequence=0), 5, 1000)
    log.assign_topic_id("AAAAAAAAAAAAAAAAAAAAAQ")
    log.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 7\n")
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    return Shell(tmp_path, tmp_path / "home")


def json_lines(output: bytes) -> list[dict[str, object]]:
    return list(map(json.loads, output.splitlines()))


def test_a_directory_is_told_file_by_file_in_order(shell: Shell) -> None:
    told = json_lines(shell.succeed("dump", ".", "--json"))
    files = list(dict.fromkeys(Path(str(line["file"])).name for line in told))
    own, texts = (
        ["meta.properties", "recovery-point-offset-checkpoint"],
        ["leader-epoch-checkpoint", "partition.metadata"],
    )
    assert files == [*own, LOG, INDEX, TIME_INDEX, SNAPSHOT, *texts]
    kinds = [line["what"] for line in told]
    assert kinds == ["identity", "offset", *["batch"] * 6, *["entry"] * 4, "producer", "epoch", "topic"]


def test_records_are_shown_when_they_are_asked_for(shell: Shell) -> None:
    output = shell.succeed("dump", "--records", f"orders-0/{LOG}").decode().splitlines()
    assert len(output) == 1 + 6 + 7
    assert output[-1] == '  record offset=6 timestamp=1970-01-01T00:00:01.006Z key=null value="six"'


def cut(size: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:size]


def flip(position: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def put(position: int, new: str) -> Callable[[bytes], bytes]:
    piece = bytes.fromhex(new)
    return lambda content: content[:position] + piece + content[position + len(piece) :]


@dataclass(frozen=True)
class Case:
    """A file, what becomes of it, and what is told of it."""

    name: str
    file: str
    change: Callable[[bytes], bytes]
    position: int
    told: str


CASES = [
    Case("flipped bit in a record", LOG, flip(215 + 65), 215, "CRC"),
    Case("torn tail", LOG, cut(420), 353, "torn: a batch of 71 bytes, of which 67 are there"),
    Case("torn header", LOG, cut(400), 353, "torn: 47 bytes of a batch, less than its header"),
    Case("zeros at the end", LOG, lambda content: content + bytes(5000), 424, "5000 bytes of zeros"),
    Case("noise at the end", LOG, lambda content: content + b"\xff" * 100, 424, "no batch begins here"),
    Case("offsets going back", LOG, put(146, "0000000000000001"), 146, "offset 1 goes back: 3 or more"),
    Case("another magic", LOG, put(77 + 16, "01"), 77, "no batch begins here: message format 1"),
    Case("absurd length", LOG, put(77 + 8, "7fffffff"), 77, "torn: a batch of 2147483659 bytes"),
    Case("wrong offset", INDEX, put(8, "00000004"), 8, "offset 4 at 284, where the batch ends with offset 5"),
    Case("wrong position", INDEX, put(4, "00000093"), 0, "where no batch begins"),
    Case("position past the end", INDEX, put(12, "00001000"), 8, "the .log has only 424 bytes"),
    Case("entries out of order", INDEX, put(8, "00000002"), 8, "does not follow"),
    Case("half an entry", INDEX, cut(12), 8, "4 bytes at the end are no whole entry"),
    Case("wrong timestamp", TIME_INDEX, put(7, "ec"), 0, "timestamp 1004 of offset 1"),
    Case("an offset that is not there", TIME_INDEX, put(20, "00000009"), 12, "is not in the .log"),
    Case("time goes back", TIME_INDEX, put(19, "01"), 12, "timestamp 769 of offset 4"),
    Case("half a time entry", TIME_INDEX, cut(20), 12, "8 bytes at the end"),
    Case("flipped bit in a snapshot", SNAPSHOT, flip(30), 2, "CRC"),
    Case("a snapshot cut off", SNAPSHOT, cut(5), 0, "5 bytes cannot hold a snapshot"),
    Case("another snapshot version", SNAPSHOT, put(0, "0002"), 0, "version 2, not 1"),
    Case("epochs out of order", "leader-epoch-checkpoint", lambda _: b"0\n2\n5 0\n4 9\n", 8, "does not follow"),
    Case("torn checkpoint", "leader-epoch-checkpoint", cut(7), 4, "torn"),
    Case("a line too few", "leader-epoch-checkpoint", lambda _: b"0\n2\n5 0\n", 8, "1 entries, but the second"),
    Case("another version", "leader-epoch-checkpoint", lambda _: b"1\n0\n", 0, "version '1', not 0"),
    Case("an empty checkpoint", "leader-epoch-checkpoint", cut(0), 0, "torn"),
    Case("half a topic id", "partition.metadata", cut(30), 0, "no topic id"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_damage_is_told_with_its_place(shell: Shell, case: Case) -> None:
    file = shell.directory / "orders-0" / case.file
    assert shell.run("dump", str(file)).status == 0
    file.write_bytes(case.change(file.read_bytes()))
    outcome = shell.run("dump", "--json", str(file))
    damage = [line for line in json_lines(outcome.output) if line["what"] == "damage"]
    assert outcome.status == 1
    assert (damage[0]["position"], damage[0]["good_bytes"]) == (case.position, case.position)
    assert case.told in str(damage[0]["reason"])
    assert len(outcome.complaint_lines) == 1
    assert outcome.complaint.startswith(f"tidelog: 1 of 1 files damaged, the first {file}: byte {case.position}: ")


def test_what_follows_a_bad_batch_is_shown(shell: Shell) -> None:
    file = shell.directory / "orders-0" / LOG
    file.write_bytes(flip(70)(file.read_bytes()))
    kinds = [line["what"] for line in json_lines(shell.run("dump", "--json", str(file)).output)]
    assert kinds == ["batch", "damage", *["batch"] * 5]


@pytest.mark.parametrize("archive", ["clean", "killed"])
def test_what_kafka_wrote_is_sound(shell: Shell, archive: str) -> None:
    logs = unpack(KAFKA_WRITTEN / f"{archive}.tar.xz", shell.directory) / LOGS
    told = json_lines(shell.succeed("dump", "--json", "--records", str(logs)))
    assert {"batch", "record", "marker", "entry", "producer", "offset", "epoch", "topic", "identity"} <= {
        line["what"] for line in told
    }
    assert any(line["what"] == "padding" for line in told) == (archive == "killed")


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["nowhere"], 2, "'nowhere' does not exist"),
        ([], 2, "Missing argument"),
        (["note.txt"], 1, "no file of a log has such a name"),
        (["empty"], 1, "no files of a log are there"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(shell: Shell, arguments: list[str], status: int, told: str) -> None:
    (shell.directory / "note.txt").write_text("x")
    (shell.directory / "empty").mkdir()
    outcome = shell.run("dump", *arguments)
    assert (outcome.status, len(outcome.complaint_lines)) == (status, 1)
    assert told in outcome.complaint and outcome.output == b""


def test_head_ends_it_quietly(shell: Shell) -> None:
    file = shell.directory / LOG
    file.write_bytes(b"".join(batch(1000, base_offset=offset) for offset in range(20_000)))
    with shell.start("dump", LOG) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""


def pipe(place: Path) -> None:
    os.mkfifo(place)


def device(place: Path) -> None:
    place.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, device])
def test_what_is_no_regular_file_is_not_waited_for(shell: Shell, make: Callable[[Path], None]) -> None:
    make(shell.directory / LOG)
    outcome = shell.run("dump", LOG, timeout_s=10)
    assert (outcome.status, outcome.complaint_lines) == (1, [f"tidelog: {LOG}: not a regular file"])


@pytest.mark.parametrize("name", [LOG, INDEX, TIME_INDEX])
def test_zeros_are_gone_through_once_and_fast(shell: Shell, name: str) -> None:
    (shell.directory / name).touch()
    os.truncate(shell.directory / name, 256 << 20)
    assert b"268435456" in shell.run("dump", name, timeout_s=10).output


@pytest.mark.parametrize("name", [INDEX, TIME_INDEX])
def test_zeros_with_an_entry_behind_them_are_gone_through_once(shell: Shell, name: str) -> None:
    (shell.directory / name).write_bytes(bytes(600_000) + b"\x01" * 24)
    outcome = shell.run("dump", name, timeout_s=20)
    assert outcome.status == 1
    assert b"entry position=600000" in outcome.output


def test_a_length_that_claims_the_rest_of_a_large_file_costs_no_memory(shell: Shell) -> None:
    file, size = shell.directory / LOG, 1 << 30
    file.write_bytes(put(8, (size - 12).to_bytes(4, "big").hex())(batch(1000)))
    with file.open("r+b") as grown:
        grown.truncate(size)  # most of it is a hole
    # Told by a small process between: a child begins with the peak of whoever forked it.
    peak_of = (
        "import resource, subprocess, sys; status = subprocess.run(sys.argv[1:]).returncode;"
        "print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    told = subprocess.run(
        [sys.executable, "-c", peak_of, TIDELOG, "dump", str(file)], stdout=subprocess.PIPE, check=True, timeout=60
    ).stdout
    assert b"DAMAGED at byte 0: CRC" in told
    status, peak_kb = map(int, told.split()[-2:])
    assert status == 1
    assert peak_kb < 150 * 1024

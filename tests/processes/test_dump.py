"""`tidelog dump`, installed: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes.harness.command import TIDELOG, Shell
from tests.storage.logs import batch
from tests.storage.worked_example import INDEX, LOG, SNAPSHOT, TIME_INDEX, write_worked_example


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A user with the log of the worked example in docs/FORMAT.md: batches at 0, 77, 146, 215, 284 and 353."""
    write_worked_example(tmp_path)
    return Shell(tmp_path, tmp_path / "home")


def json_lines(output: bytes) -> list[dict[str, object]]:
    return list(map(json.loads, output.splitlines()))


def test_dump_prints_a_directory_file_by_file_in_order(shell: Shell) -> None:
    shown = json_lines(shell.succeed("dump", ".", "--json"))
    files = list(dict.fromkeys(Path(str(line["file"])).name for line in shown))
    own, texts = (
        ["meta.properties", "recovery-point-offset-checkpoint"],
        ["leader-epoch-checkpoint", "partition.metadata"],
    )
    assert files == [*own, LOG, INDEX, TIME_INDEX, SNAPSHOT, *texts]
    kinds = [line["what"] for line in shown]
    assert kinds == ["identity", "offset", *["batch"] * 6, *["entry"] * 4, "producer", "epoch", "topic"]


def test_dump_prints_records_on_request(shell: Shell) -> None:
    output = shell.succeed("dump", "--records", f"orders-0/{LOG}").decode().splitlines()
    assert len(output) == 1 + 6 + 7
    assert output[-1] == '  record offset=6 timestamp=1970-01-01T00:00:01.006Z key=null value="six"'


@pytest.mark.parametrize(("name", "bit_at", "position"), [(LOG, 215 + 65, 215), (INDEX, 7, 0), (SNAPSHOT, 30, 2)])
def test_damage_ends_the_command_with_one_line(shell: Shell, name: str, bit_at: int, position: int) -> None:
    file = shell.directory / "orders-0" / name
    content = bytearray(file.read_bytes())
    content[bit_at] ^= 1
    file.write_bytes(content)
    outcome = shell.run("dump", "--json", str(file))
    damage = [line for line in json_lines(outcome.output) if line["what"] == "damage"]
    assert outcome.status == 1
    assert (damage[0]["position"], damage[0]["good_bytes"]) == (position, position)
    assert len(outcome.complaint_lines) == 1
    assert outcome.complaint.startswith(f"tidelog: 1 of 1 files damaged, the first {file}: byte {position}: ")


@pytest.mark.parametrize(
    ("arguments", "status", "shown"),
    [
        (["nowhere"], 2, "'nowhere' does not exist"),
        ([], 2, "Missing argument"),
        (["note.txt"], 1, "not the name of a file in a log"),
        (["empty"], 1, "found no log files"),
    ],
)
def test_wrong_input_prints_one_line(shell: Shell, arguments: list[str], status: int, shown: str) -> None:
    (shell.directory / "note.txt").write_text("x")
    (shell.directory / "empty").mkdir()
    outcome = shell.run("dump", *arguments)
    assert (outcome.status, len(outcome.complaint_lines)) == (status, 1)
    assert shown in outcome.complaint and outcome.output == b""


def test_closed_output_ends_the_command_without_an_error(shell: Shell) -> None:
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
def test_dump_does_not_wait_for_irregular_files(shell: Shell, make: Callable[[Path], None]) -> None:
    make(shell.directory / LOG)
    outcome = shell.run("dump", LOG, timeout_s=10)
    assert (outcome.status, outcome.complaint_lines) == (1, [f"tidelog: {LOG}: not a regular file"])


def test_wrong_batch_length_in_a_large_file_needs_no_memory(shell: Shell) -> None:
    file, size = shell.directory / LOG, 1 << 30
    content = bytearray(batch(1000))
    content[8:12] = (size - 12).to_bytes(4, "big")
    file.write_bytes(content)
    with file.open("r+b") as grown:
        grown.truncate(size)  # most of it is a hole
    # A small process in between starts the command, because a forked child starts with its parent's peak memory.
    peak_of = (
        "import resource, subprocess, sys; status = subprocess.run(sys.argv[1:]).returncode;"
        "print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", peak_of, TIDELOG, "dump", str(file)], stdout=subprocess.PIPE, check=True, timeout=60
    ).stdout
    assert b"DAMAGED at byte 0: CRC" in shown
    status, peak_kb = map(int, shown.split()[-2:])
    assert status == 1
    assert peak_kb < 150 * 1024

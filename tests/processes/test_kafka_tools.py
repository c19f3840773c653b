"""Runs the commands of docs/KAFKA-TOOLS.md as they are on the page."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness.command import TIDELOG, Shell, processes_of
from tests.processes.harness.waiting import wait_for
from tests.typed_commands import understand

PAGE = Path(__file__).parent.parent.parent / "docs" / "KAFKA-TOOLS.md"
#: Commands that report the cluster's health by their exit status, which may be 1 while partitions move.
TELLS_BY_STATUS = ("tidelog explain", "tidelog doctor")
#: Commands that run until Ctrl-C, or that start another cluster.
OTHERS = {"tidelog broker --config broker.toml", "tidelog up --config settings.toml"}
#: The scripts that the page must mention.
NAMED = ["kafka-topics", "kafka-console-producer", "kafka-console-consumer", "kafka-consumer-groups", "kafka-configs"]


def rows() -> list[list[str]]:
    """Return the cells of each row: task, Kafka, Tidelog."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if "| Kafka | Tidelog |" not in line
    ]


def commands() -> list[str]:
    return [command for _, _, here in rows() for command in re.findall(r"`(tidelog [^`]+)`", here)]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A user with a home directory, and no variable that says where clusters lie."""
    user = Shell(tmp_path, tmp_path / ".local/share/tidelog")
    write_records(tmp_path)
    try:
        yield user
    finally:
        user.run("down", "--purge")
        assert processes_of(tmp_path) == []


def write_records(directory: Path) -> None:
    """The files that commands of the page read."""
    (directory / "lines.txt").write_text("".join(f"line {number}\n" for number in range(20)))
    (directory / "keyed.txt").write_text("".join(f"key-{number}:value\n" for number in range(20)))
    (directory / "records.jsonl").write_text(
        "".join(f'{{"value": "v", "partition": {number % 6}, "headers": [["h", "x"]]}}\n' for number in range(60))
    )


def test_every_row_names_a_command_for_a_script() -> None:
    assert all(len(row) == 3 and all(row) for row in rows())
    page = PAGE.read_text()
    assert [name for name in NAMED if f"`{name}.sh`" not in page] == []
    assert len(commands()) > 50


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_page_parses(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only parse the commands. Running them takes a minute, and is a separate test."""
    monkeypatch.chdir(tmp_path)
    write_records(tmp_path)
    for name in ("broker.toml", "settings.toml"):
        (tmp_path / name).touch()
    (tmp_path / ".local/share/tidelog/broker-1/orders-1").mkdir(parents=True)
    understand(command.replace("~", str(tmp_path)))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_command_of_the_page_works_in_order(shell: Shell) -> None:
    path = f"{TIDELOG.parent}{os.pathsep}{os.environ['PATH']}"
    environment = shell.environment({"PATH": path, "HOME": str(shell.directory), "TIDELOG_HOME": None})
    for command in commands():
        if command in OTHERS:
            continue
        if command.endswith(" --follow"):
            follow(shell, command, environment)
            continue
        ended = subprocess.run(
            command, shell=True, env=environment, cwd=shell.directory, capture_output=True, timeout=120, check=False
        )
        assert ended.returncode == 0 or command.startswith(TELLS_BY_STATUS), f"{command}: {ended.stderr.decode()}"
        if "reassign" in command or "elect" in command:
            settle(shell, environment)


def settle(shell: Shell, environment: dict[str, str]) -> None:
    """Wait until no partition is being reassigned."""

    def status() -> bool:
        asked = [str(TIDELOG), "topic", "reassign", "orders", "--status"]
        shown = subprocess.run(asked, env=environment, cwd=shell.directory, capture_output=True, timeout=60, check=True)
        return b"no partition of orders is being reassigned" in shown.stdout

    wait_for("the reassignments", status)


def follow(shell: Shell, command: str, environment: dict[str, str]) -> None:
    """Run a command that ends only by Ctrl-C."""
    with shell.start(*command.split()[1:], environment=environment) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130

"""`scripts/compose-check` without podman, and how it measures."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog import TopicPartition
from tidelog.model import Endpoint
from tools.compose_check.engine import NotRun
from tools.compose_check.load import Load, Promise
from tools.compose_check.reading import tools
from tools.compose_check.scenario import require_free_ports

PROJECT = Path(__file__).parents[2]
ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def promised(*times: float) -> list[Promise]:
    """Return records that were acknowledged a tenth of a second after they were sent."""
    return [Promise(number, number, sent, sent + 0.1) for number, sent in enumerate(times)]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.setattr("tools.compose_check.load.Producer", lambda *_, **__: None)
    monkeypatch.setattr("tools.compose_check.load.time.monotonic", lambda: 20.0)
    return Load("127.0.0.1:1", [ONE, OTHER])


def test_silence_is_the_longest_of_all_partitions(load: Load) -> None:
    load.promises = {ONE: promised(9.0, 10.0, 13.0, 19.5), OTHER: promised(9.0, 11.0, 12.0, 19.9)}
    assert load.silence([ONE], 10.0) == pytest.approx(6.5)
    assert load.silence([ONE, OTHER], 10.0) == pytest.approx(7.9)


def test_acknowledgements_of_earlier_records_do_not_count_as_resumed(load: Load) -> None:
    load.promises = {ONE: promised(9.0, 10.0), OTHER: promised(9.0, 10.2)}
    assert not load.resumed([ONE, OTHER], 10.05)
    load.promises[ONE] += promised(10.1)
    assert load.resumed([ONE, OTHER], 10.05)


def test_command_reports_missing_podman_and_exits_with_3(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tools.compose_check"],
        env={**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, "compose-check: not run: podman is not installed\n")


def test_taken_port_is_named_with_the_files_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        free = Endpoint("127.0.0.1", other.getsockname()[1])
        other.close()
        require_free_ports({1: free})
        port = taken.getsockname()[1]
        with pytest.raises(NotRun) as raised:
            require_free_ports({1: free, 2: Endpoint("127.0.0.1", port)})
    assert str(raised.value).startswith(f"port {port} of broker-2 is taken: stop the process")
    assert "compose/broker-2.toml" in str(raised.value)


def test_only_tools_that_can_print_the_config_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    knows = {"docker": "[ $3 = --help ]", "docker-compose": "true", "podman-compose": "[ $1 = version ]"}
    for name, condition in knows.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{condition}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools() == [("docker-compose",)]

"""Test that only log lines since the begin of a fault are read."""

from __future__ import annotations

from pathlib import Path

from verify.chaos.faults.support.broker_log_reader import BrokerLogReader

TIME = "2026-01-01 00:00:00.000"


def test_only_new_log_lines_are_read_without_timestamps(tmp_path: Path) -> None:
    log = tmp_path / "broker-1.log"
    log.write_text(f"{TIME} ERROR node.handlers.control.role_changes: t-0: the log has epoch 9; refused\n")
    said = BrokerLogReader(log)
    assert said.lines("refused") == []
    assert said.last() == ""
    with log.open("a") as more:
        more.write(f"{TIME} ERROR node.handlers.control.role_changes: t-1: the log has epoch 5; refused\n")
        more.write(f"{TIME} INFO node.process.broker: serves\n")
    assert said.lines("refused") == ["t-1: the log has epoch 5; refused"]
    assert said.last() == "serves"


def test_printed_output_comes_after_the_log(tmp_path: Path) -> None:
    log = tmp_path / "broker-1.log"
    said = BrokerLogReader(log)
    log.write_text(f"{TIME} INFO node.process.broker: starts\n")
    log.with_suffix(".out").write_text("broker: it is in use by another process\n\n")
    assert said.last() == "broker: it is in use by another process"


def test_rotated_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "broker-1.log"
    log.write_text("x" * 1_000)
    said = BrokerLogReader(log)
    log.write_text("refused\n")
    assert said.lines("refused") == ["refused"]

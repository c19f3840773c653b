"""Test that the changes of a run can be undone, also by another process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness.waiting import wait_for
from tidelog.local.processes.process import Process
from verify.chaos.targets.undo import UNDO_FILE, UndoFile


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    process = Process.spawn(["sleep", "60"], output=tmp_path / "out")
    yield process
    process.signal(signal.SIGKILL)
    process.wait(10_000)


def state_of(process: Process) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_open_entries_are_undone_last_first_by_a_new_undo_file(tmp_path: Path) -> None:
    output = tmp_path / "output"
    undo = UndoFile(tmp_path)
    for word in ("first", "second", "third"):
        done = undo.to_run("sh", "-c", f"echo {word} >> {output}")
        if word == "second":
            done()
    again = UndoFile(tmp_path)
    assert again.pending
    assert again.perform() == []
    assert output.read_text().split() == ["third", "first"]
    assert not UndoFile(tmp_path).pending


def test_undo_removes_a_file_and_ignores_a_missing_one(tmp_path: Path) -> None:
    undo, filler = UndoFile(tmp_path), tmp_path / "filler"
    undo.to_remove(filler)
    undo.to_remove(tmp_path / "never made")
    filler.touch()
    assert undo.perform() == []
    assert not filler.exists()


def test_undo_continues_a_stopped_process(tmp_path: Path, sleeper: Process) -> None:
    UndoFile(tmp_path).to_continue(sleeper)
    sleeper.signal(signal.SIGSTOP)
    wait_for("it to be stopped", lambda: state_of(sleeper) == "T")
    UndoFile(tmp_path).perform()
    wait_for("it to go on", lambda: state_of(sleeper) != "T")


def test_undo_leaves_another_process_with_the_same_pid_alone(tmp_path: Path, sleeper: Process) -> None:
    UndoFile(tmp_path).to_continue(Process(sleeper.pid, "another birth"))
    sleeper.signal(signal.SIGSTOP)
    wait_for("it to be stopped", lambda: state_of(sleeper) == "T")
    assert UndoFile(tmp_path).perform() == []
    assert state_of(sleeper) == "T"


def test_failed_undo_is_reported_once_and_others_are_undone(tmp_path: Path) -> None:
    undo, file = UndoFile(tmp_path), tmp_path / "file"
    file.touch()
    undo.to_remove(file)
    undo.to_run("sh", "-c", "echo it is busy >&2; exit 32")
    undo.to_run("no-such-command-anywhere")
    failures = undo.perform()
    assert [failure.rpartition(": ")[2] for failure in failures][1] == "it is busy"
    assert "no-such-command-anywhere" in failures[0]
    assert not file.exists()
    assert undo.perform() == []


def test_truncated_undo_line_is_skipped(tmp_path: Path) -> None:
    undo, file = UndoFile(tmp_path), tmp_path / "file"
    file.touch()
    undo.to_remove(file)
    with (tmp_path / UNDO_FILE).open("a") as log:
        log.write('{"id":1,"run":["fal')
    assert UndoFile(tmp_path).perform() == []
    assert not file.exists()


def test_entries_are_on_the_disk_before_the_change(tmp_path: Path) -> None:
    UndoFile(tmp_path).to_run("true")
    assert '"run": ["true"]' in (tmp_path / UNDO_FILE).read_text()

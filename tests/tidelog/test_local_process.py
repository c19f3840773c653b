"""Processes that others started, and when they have ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.suspended import suspended_process
from tidelog.local.processes.process import Condition, Process, birth_of, read_stat

_MAIN_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_runs_as_long_as_one_of_its_threads_does() -> None:
    child = subprocess.Popen([sys.executable, "-c", _MAIN_THREAD_ENDS])
    try:
        deadline = time.monotonic() + 30
        while b") Z " not in Path(f"/proc/{child.pid}/stat").read_bytes():
            assert time.monotonic() < deadline, "its main thread did not end"
        birth = birth_of(child.pid)
        assert birth is not None
        process = Process(child.pid, birth)  # as a later command finds it in the state file
        assert process.running
        assert not process.wait(0)
        assert process.signal(signal.SIGKILL)
        assert process.wait(30_000)
        assert not process.running
    finally:
        child.kill()
        child.wait()


def test_a_recycled_pid_is_not_the_process_that_had_it() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        impostor = Process(child.pid, "another boot/1")
        assert not impostor.running
        assert impostor.wait(0)
        assert not impostor.signal(signal.SIGKILL)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("letter", "threads", "condition"),
    [
        ("R", 1, Condition.RUNNING),
        ("S", 9, Condition.RUNNING),
        ("I", 1, Condition.RUNNING),
        ("T", 9, Condition.SUSPENDED),
        ("t", 1, Condition.SUSPENDED),
        ("D", 9, Condition.BLOCKED),
        ("Z", 1, Condition.ENDED),
        ("X", 0, Condition.ENDED),
        ("Z", 2, Condition.RUNNING),  # its first thread alone has ended
    ],
)
def test_condition_follows_the_state_that_the_kernel_shows(letter: str, threads: int, condition: Condition) -> None:
    stat = f"4711 (a) name (with ) Z T) {letter} " + "0 " * 16 + f"{threads} 0 815 0 0"
    assert read_stat(stat) == ("815", condition)


def test_suspended_process_still_runs_and_resumes() -> None:
    with suspended_process() as process:
        assert (process.running, process.condition) == (True, Condition.SUSPENDED)
        process.signal(signal.SIGCONT)
        while process.condition is Condition.SUSPENDED:
            time.sleep(0.01)
        assert process.condition is Condition.RUNNING
        process.signal(signal.SIGKILL)
        assert process.wait(30_000)
        assert process.condition is Condition.ENDED


def test_process_with_a_recycled_pid_has_ended() -> None:
    with suspended_process() as process:
        assert Process(process.pid, "another boot/1").condition is Condition.ENDED

"""Processes that others started, and when they have ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tidelog.local.process import Process, birth_of

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

"""A child process that a signal has stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.local.processes.process import Process, birth_of


@contextmanager
def suspended_process() -> Iterator[Process]:
    """Start a process and suspend it; it is killed at the end."""
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            child.send_signal(signal.SIGSTOP)
            os.waitpid(child.pid, os.WUNTRACED)
            birth = birth_of(child.pid)
            assert birth is not None
            yield Process(child.pid, birth)
        finally:
            child.kill()

"""The thread behind the synchronous clients."""

from __future__ import annotations

import subprocess
import sys


def test_a_client_that_nobody_closed_is_stopped_before_the_interpreter_goes() -> None:
    """In a process of its own: what matters happens at its exit, after everything that was registered later."""
    program = (
        "import atexit\n"
        "from tidelog.io_thread import IoThread\n"
        "threads = []\n"
        "atexit.register(lambda: print('closed:', threads[0].loop.is_closed()))\n"
        "threads.append(IoThread())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed: True\n", "")

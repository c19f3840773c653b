"""The thread behind the synchronous clients."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from tidelog.errors import ClosedError
from tidelog.io_thread import IoThread


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


def test_nobody_waits_for_a_thread_that_has_stopped() -> None:
    io = IoThread()
    begun = threading.Event()
    told: list[str] = []

    async def endless() -> None:
        begun.set()
        await asyncio.sleep(3600)

    def wait() -> None:
        try:
            io.run(endless())
        except ClosedError as error:
            told.append(str(error))

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    assert begun.wait(10)
    io.stop()
    waiter.join(10)
    assert told == ["the client was closed meanwhile"]
    with pytest.raises(ClosedError):
        io.run(endless())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_ends_the_thread_leaves_nobody_waiting() -> None:
    io = IoThread()

    async def end_the_thread() -> None:
        asyncio.get_running_loop().call_soon(_exit)
        await asyncio.sleep(3600)

    told: list[BaseException] = []

    def wait() -> None:
        try:
            io.run(end_the_thread())
        except BaseException as error:
            told.append(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiter.join(10)
    io._thread.join(10)
    assert [type(error) for error in told] == [ClosedError]
    with pytest.raises(ClosedError):
        io.run(asyncio.sleep(0))


def _exit() -> None:
    raise SystemExit

"""Test the thread behind the synchronous clients."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable

import pytest

from tidelog.client.blocking import io_thread
from tidelog.client.blocking.io_thread import GRACE_S, IoThread, in_caller
from tidelog.errors import ClosedError, TimeoutError


def test_unclosed_client_is_stopped_before_the_interpreter_ends() -> None:
    """Run code in its own process, because its exit handlers are tested, which run after those registered later."""
    program = (
        "import atexit\n"
        "from tidelog.client.blocking.io_thread import IoThread\n"
        "threads = []\n"
        "atexit.register(lambda: print('closed:', threads[0].loop.is_closed()))\n"
        "threads.append(IoThread())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed: True\n", "")


def test_calls_to_a_stopped_thread_end_at_once() -> None:
    io = IoThread()
    begun = threading.Event()
    raised: list[str] = []

    async def endless() -> None:
        begun.set()
        await asyncio.sleep(3600)

    def wait() -> None:
        try:
            io.run(endless())
        except ClosedError as error:
            raised.append(str(error))

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    assert begun.wait(10)
    io.stop()
    waiter.join(10)
    assert raised == ["the client was closed meanwhile"]
    with pytest.raises(ClosedError):
        io.run(endless())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_callback_that_ends_the_thread_ends_all_waits() -> None:
    io = IoThread()

    async def end_the_thread() -> None:
        asyncio.get_running_loop().call_soon(_exit)
        await asyncio.sleep(3600)

    raised: list[BaseException] = []

    def wait() -> None:
        try:
            io.run(end_the_thread())
        except BaseException as error:
            raised.append(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiter.join(10)
    io._thread.join(10)
    assert [type(error) for error in raised] == [ClosedError]
    with pytest.raises(ClosedError):
        io.run(asyncio.sleep(0))


def _exit() -> None:
    raise SystemExit


def test_coroutine_may_call_back_its_waiting_thread_which_may_wait_again() -> None:
    io = IoThread()
    called_in: list[threading.Thread] = []

    async def answer() -> int:
        return 42

    def call() -> None:
        called_in.append(threading.current_thread())
        assert io.run(answer()) == 42

    async def work() -> str:
        await in_caller(call)
        await in_caller(call)
        return "done"

    try:
        assert io.run(work()) == "done"
        assert called_in == [threading.current_thread()] * 2
    finally:
        io.stop()


def test_exception_of_a_callback_reaches_the_coroutine_and_the_waiter() -> None:
    io = IoThread()
    seen: list[str] = []

    async def work() -> None:
        try:
            await in_caller(lambda: 1 / 0)
        except ZeroDivisionError as error:
            seen.append(str(error))
            raise

    async def coroutine_function() -> None: ...

    async def work_wrongly() -> None:
        await in_caller(coroutine_function)

    try:
        with pytest.raises(ZeroDivisionError):
            io.run(work())
        assert seen == ["division by zero"]
        with pytest.raises(TypeError, match=r"tidelog\.aio"):
            io.run(work_wrongly())
    finally:
        io.stop()


def test_callback_time_is_not_counted_and_its_interrupt_ends_the_wait() -> None:
    io = IoThread()
    cancelled = threading.Event()

    async def work(call: Callable[[], object]) -> int:
        try:
            await in_caller(call)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return 1

    def interrupt() -> None:
        raise KeyboardInterrupt

    try:
        assert io.run(work(lambda: time.sleep(1.2)), timeout_s=1 - GRACE_S) == 1
        with pytest.raises(KeyboardInterrupt):
            io.run(work(interrupt))
        assert cancelled.wait(10)
    finally:
        io.stop()


class StoppedProcess:
    """The module `time` of a process that is stopped for a minute when a wait ends."""

    def __init__(self, wait_s: float, resume: Callable[[], object]) -> None:
        self._end_s = time.monotonic() + wait_s
        self._resume = resume
        self._stopped_s = 0.0

    def monotonic(self) -> float:
        if not self._stopped_s and time.monotonic() >= self._end_s:
            self._stopped_s = 60.0
            self._resume()
        return time.monotonic() + self._stopped_s


def test_call_of_a_process_that_was_stopped_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    io = IoThread()
    resumed = asyncio.Event()

    async def work() -> int:
        await resumed.wait()
        return 7

    stopped = StoppedProcess(0.05, lambda: io.call(resumed.set))
    monkeypatch.setattr(io_thread, "time", stopped)
    try:
        assert io.run(work(), timeout_s=0.05 - GRACE_S) == 7
    finally:
        io.stop()


class InterruptedThread(IoThread):
    """A thread whose user presses Ctrl-C when the first call is about to begin."""

    is_interrupted = False

    def call(self, function: Callable[[], object]) -> None:
        if not self.is_interrupted:
            self.is_interrupted = True
            raise KeyboardInterrupt
        super().call(function)


def test_call_that_is_interrupted_before_it_begins_leaves_no_warning() -> None:
    io = InterruptedThread()

    async def work() -> None: ...

    try:
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            with pytest.raises(KeyboardInterrupt):
                io.run(work())
            io.run(asyncio.sleep(0))  # the loop has dropped the interrupted call before
            gc.collect()
        assert not [each for each in issued if each.category is RuntimeWarning]  # not those of other tests
    finally:
        io.stop()


def test_result_of_an_abandoned_call_is_handed_over() -> None:
    io = IoThread()
    may_end, is_lost = threading.Event(), threading.Event()
    lost: list[int] = []

    async def work() -> int:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            assert may_end.wait(10)
        return 7

    def keep(result: int) -> None:
        lost.append(result)
        is_lost.set()

    try:
        with pytest.raises(TimeoutError):
            io.run(work(), timeout_s=0.01 - GRACE_S, on_lost=keep)
        may_end.set()
        assert is_lost.wait(10)
        assert lost == [7]
    finally:
        may_end.set()
        io.stop()

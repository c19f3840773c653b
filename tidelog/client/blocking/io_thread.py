"""Run an event loop on a daemon thread, where a synchronous client does its I/O."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import inspect
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

import uvloop

from tidelog.clock import bearable_s
from tidelog.errors import ClosedError, InternalError, TimeoutError

T = TypeVar("T")

#: Added to a wait's timeout, because the coroutine ends at its own deadline with a more precise error.
GRACE_S = 5.0
#: If a wait ends so much later than it should, the process was stopped meanwhile, for example by SIGSTOP.
_PAUSE_S = 1.0
_STOP_S = 5.0


class IoThread:
    """A thread of one process. The child of a fork has no such thread, and `on_fork` is called there.

    The thread must not refer to its client, because the client would then never be garbage-collected. Therefore the
    thread keeps only a weak reference to `on_fork`, which is a method of the client.
    """

    def __init__(self, name: str = "tidelog-io", on_fork: Callable[[], None] | None = None) -> None:
        self._stopped = self._forked = False
        self._on_fork = None if on_fork is None else weakref.WeakMethod(on_fork)
        self._freeing: asyncio.Task[None] | None = None
        self._waiting: set[_Call[Any]] = set()
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        self._thread.start()
        _threads.add(self)
        # For a client that is not closed: a loop that runs while the interpreter ends can crash it.
        atexit.register(self.stop)

    @property
    def stopped(self) -> bool:
        """Whether the thread has stopped, or is about to stop."""
        return self._stopped

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread, which must not wait for its own work."""
        return threading.current_thread() is self._thread

    def closed_error(self) -> ClosedError:
        """Return the error of calls after the stop."""
        return ClosedError(
            "the client was made before a fork; make a new one" if self._forked else "the client is closed"
        )

    def run(
        self,
        coroutine: Coroutine[Any, Any, T],
        timeout_s: float | None = None,
        on_lost: Callable[[T], object] = lambda result: None,
    ) -> T:
        """Run the coroutine on the loop, wait, and return its result. Call this method from other threads only.

        The coroutine keeps to `timeout_s` itself. The wait ends 5 s later with TimeoutError if the coroutine has not
        ended, and has no limit without `timeout_s`. If the whole process was stopped meanwhile, the wait lasts 5 s
        longer, so that the loop can end the coroutine. TimeoutError and an interrupt (Ctrl-C) of the wait cancel the
        coroutine. If the coroutine has a result nevertheless, the loop calls `on_lost` with it. Callbacks of
        `in_caller` run in this wait, and their time extends it. Raises ClosedError after the stop and if the thread
        stops meanwhile, and RuntimeError if the I/O thread itself calls.
        """
        if self._stopped:
            coroutine.close()
            raise self.closed_error()
        if self.is_current:
            coroutine.close()
            raise RuntimeError("a callback of a synchronous client must not call the client, because it would deadlock")
        waiting_call = _Call(self, coroutine, on_lost)
        self._waiting.add(waiting_call)
        try:
            self.call(waiting_call.begin)
            if self.loop.is_closed():
                self._fail_all_waits()  # the thread may have ended before it could see this call
            return waiting_call.outcome(timeout_s)
        finally:
            self._waiting.discard(waiting_call)
            if not waiting_call.has_outcome:
                self.call(waiting_call.abandon)

    def call(self, function: Callable[[], object]) -> None:
        """Schedule a call of `function` on the loop; do nothing if the thread has stopped."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def stop(self) -> None:
        """Cancel the remaining tasks, close the loop, and end the thread; wait up to 5 s for its end. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        atexit.unregister(self.stop)
        _threads.discard(self)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_STOP_S)

    def abandon(self, shut_down: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End the thread of a garbage-collected client, after `shut_down` has freed the client's resources.

        This call does not wait for the end of the thread, because any thread may make it, even that thread itself.
        """
        if self._stopped:
            return
        self._stopped = True
        _threads.discard(self)
        atexit.register(self._thread.join, _STOP_S)
        atexit.unregister(self.stop)

        def begin() -> None:
            self._freeing = self.loop.create_task(shut_down())
            self._freeing.add_done_callback(lambda _: self.loop.stop())

        with contextlib.suppress(RuntimeError):  # another thread has just closed the loop
            self.loop.call_soon_threadsafe(begin)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            remaining = asyncio.all_tasks(self.loop)
            for task in remaining:
                task.cancel()
            if remaining:
                self.loop.run_until_complete(asyncio.gather(*remaining, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self._stopped = True  # also if a callback ended the thread, because later waits would never end
            self.loop.close()
            self._fail_all_waits()
            atexit.unregister(self._thread.join)

    def forked(self) -> None:
        """Note that this process is the child of a fork, where the thread does not exist, and call `on_fork`."""
        self._stopped = self._forked = True
        atexit.unregister(self.stop)
        on_fork = self._on_fork and self._on_fork()
        if on_fork is not None:
            on_fork()

    def _fail_all_waits(self) -> None:
        """End all waits of `run` with ClosedError, because the loop that would end them is closed."""
        for waiting_call in list(self._waiting):
            waiting_call.lose_loop()


class _Outcome(NamedTuple, Generic[T]):
    """The result of a coroutine, or its error."""

    result: T | None
    error: BaseException | None


class _Call(Generic[T]):
    """A call of `run`. Only the loop can decide whether the result or the interruption of the wait came first.

    io            the thread that runs the coroutine
    inbox         the callbacks that the waiting thread is to run, and at the end the outcome
    has_outcome   whether the waiting thread has taken the outcome
    """

    def __init__(self, io: IoThread, coroutine: Coroutine[Any, Any, T], on_lost: Callable[[T], object]) -> None:
        self.io = io
        self.inbox: queue.SimpleQueue[Callable[[], None] | _Outcome[T]] = queue.SimpleQueue()
        self.has_outcome = False
        self._coroutine = coroutine
        self._on_lost = on_lost
        self._task: asyncio.Task[T] | None = None
        self._is_abandoned = False

    def outcome(self, timeout_s: float | None) -> T:
        """Wait for the result; run the callbacks that the coroutine requests meanwhile, whose time does not count.

        Raises the coroutine's error, and TimeoutError as `IoThread.run` does.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s + GRACE_S
        while True:
            try:
                received = self.inbox.get(timeout=bearable_s(None if deadline is None else deadline - time.monotonic()))
            except queue.Empty:
                now = time.monotonic()
                if deadline is None or now - deadline < _PAUSE_S:
                    raise TimeoutError(f"no outcome within {timeout_s} s") from None
                deadline = now + GRACE_S
                continue
            if isinstance(received, _Outcome):
                self.has_outcome = True
                if received.error is not None:
                    raise received.error
                return cast(T, received.result)
            began = time.monotonic()
            received()
            if deadline is not None:
                deadline += time.monotonic() - began

    def lose_loop(self) -> None:
        """End the wait with ClosedError, because the loop is closed."""
        if self._task is None:
            self._coroutine.close()
        self._fail(_closed_meanwhile())

    def _fail(self, error: BaseException) -> None:
        self.inbox.put(_Outcome(None, error))

    # The following methods run on the loop.

    def begin(self) -> None:
        _current_call.set(self)
        self._task = self.io.loop.create_task(self._coroutine)
        self._task.add_done_callback(self._settle)

    def abandon(self) -> None:
        """Note that the caller no longer waits: cancel the task, or hand its result to `on_lost`."""
        self._is_abandoned = True
        if self._task is None:
            self._coroutine.close()
        elif self._task.done():
            self._drop(self._task)
        else:
            self._task.cancel()

    def _settle(self, task: asyncio.Task[T]) -> None:
        if self._is_abandoned:
            self._drop(task)
        elif task.cancelled():
            self._fail(
                _closed_meanwhile()
                if self.io.stopped
                else InternalError("the call was cancelled on the I/O thread of the client: repeat it")
            )
        elif (error := task.exception()) is not None:
            self._fail(error)
        else:
            self.inbox.put(_Outcome(task.result(), None))

    def _drop(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._on_lost(task.result())


#: The call of `run` on whose behalf the current task runs.
_current_call: contextvars.ContextVar[_Call[Any] | None] = contextvars.ContextVar("current_call", default=None)


def _refuse_coroutine(result: object) -> None:
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("a coroutine function cannot be a callback of a synchronous client: use tidelog.aio")


#: The threads that run in this process.
_threads: set[IoThread] = set()


def _after_fork() -> None:
    for thread in list(_threads):
        thread.forked()
    _threads.clear()


os.register_at_fork(after_in_child=_after_fork)


def _closed_meanwhile() -> ClosedError:
    return ClosedError("the client was closed meanwhile")


async def in_caller(function: Callable[[], object]) -> None:
    """Call `function` in the thread that waits in `IoThread.run` for the current task, and wait for the call's end.

    `function` may call `run` itself, because the loop stays free. Exceptions of `function` are raised here. Raises
    RuntimeError outside a call of `run`, and TypeError if `function` returns a coroutine.
    """
    waiting_call = _current_call.get()
    if waiting_call is None:
        raise RuntimeError("no thread waits in `run`, so the function cannot be called")
    done: asyncio.Future[None] = waiting_call.io.loop.create_future()

    def settle(error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def call() -> None:
        error: Exception | None = None
        try:
            _refuse_coroutine(function())
        except Exception as raised:
            error = raised
        waiting_call.io.call(partial(settle, error))

    waiting_call.inbox.put(call)
    await done

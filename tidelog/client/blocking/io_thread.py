"""One daemon thread that runs an event loop: where the synchronous clients do their I/O."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
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
from typing import Any, Generic, TypeVar

import uvloop

from tidelog.clock import bearable_s
from tidelog.errors import ClosedError, InternalError, TimeoutError

T = TypeVar("T")

#: What a wait allows on top of the coroutine's own deadline, which speaks better about what is missing.
GRACE_S = 5.0
_STOP_S = 5.0


class IoThread:
    """Belongs to the process that made it; a fork's child, which is told by `on_fork`, has to make its own.

    The thread must not refer to its client, because the client could never be dropped then. So the thread keeps only a
    weak reference to `on_fork`, which is a method.
    """

    def __init__(self, name: str = "tidelog-io", on_fork: Callable[[], None] | None = None) -> None:
        self._stopped = self._forked = False
        self._on_fork = None if on_fork is None else weakref.WeakMethod(on_fork)
        self._freeing: asyncio.Task[None] | None = None
        self._awaited: set[concurrent.futures.Future[Any]] = set()
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name=name, daemon=True)
        self._thread.start()
        _threads.add(self)
        # For a client that nobody closed: a loop that still turns while the interpreter goes can crash it.
        atexit.register(self.stop)

    @property
    def stopped(self) -> bool:
        """Whether nothing runs here any more."""
        return self._stopped

    @property
    def is_current(self) -> bool:
        """Whether this is the thread itself, which must not wait for what only it can do."""
        return threading.current_thread() is self._thread

    def closed_error(self) -> ClosedError:
        """Why nothing runs here any more."""
        return ClosedError(
            "the client was made before a fork; make another" if self._forked else "the client is closed"
        )

    def run(
        self,
        coroutine: Coroutine[Any, Any, T],
        timeout_s: float | None = None,
        on_lost: Callable[[T], object] = lambda result: None,
    ) -> T:
        """The coroutine's result. The wait can be interrupted (Ctrl-C), which cancels the coroutine.

        A result that it has all the same, and that nobody waits for then, is given to `on_lost`, on the loop.
        """
        if self._stopped:
            coroutine.close()
            raise self.closed_error()
        if self.is_current:
            coroutine.close()
            raise RuntimeError("a synchronous client was called from its own callback, which would wait for itself")
        errand = _Errand(coroutine, on_lost)
        future: concurrent.futures.Future[T] | None = None
        try:
            future = self._begin(errand)
            self._awaited.add(future)
            if self.loop.is_closed():
                self._give_up()  # it may not have seen this one
            return errand.await_result(future, None if timeout_s is None else timeout_s + GRACE_S)
        except concurrent.futures.CancelledError:
            if self._stopped:
                raise _closed_meanwhile() from None
            raise InternalError("the call was cancelled on the I/O thread of the client: repeat it") from None
        except BaseException as error:
            self.call(errand.give_up)
            if future is not None and not future.done():
                future.cancel()
                if isinstance(error, concurrent.futures.TimeoutError):
                    raise TimeoutError(f"no outcome within {timeout_s} s") from None
            raise
        finally:
            if future is not None:
                self._awaited.discard(future)

    def _begin(self, errand: _Errand[T]) -> concurrent.futures.Future[T]:
        going = errand.go()
        try:
            return asyncio.run_coroutine_threadsafe(going, self.loop)
        except RuntimeError:  # the loop was closed this very moment
            going.close()
            errand.coroutine.close()
            raise _closed_meanwhile() from None

    async def in_caller(self, function: Callable[[], object]) -> None:
        """From a coroutine that `run` waits for: have the thread that waits call `function`, and wait for that.

        It may call `run` itself, which the loop is free for. What it raises is raised here.
        """
        errand = _errand.get()
        if errand is None:
            raise RuntimeError("no thread waits that could call back")
        done: asyncio.Future[None] = self.loop.create_future()

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
            self.call(partial(settle, error))

        errand.calls.put(call)
        await done

    def call(self, function: Callable[[], object]) -> None:
        """Have the loop call `function` soon; nothing happens once the thread has stopped."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            if not self._stopped:
                raise

    def stop(self) -> None:
        """Cancel what still runs, close the loop, end the thread. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        atexit.unregister(self.stop)
        _threads.discard(self)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_STOP_S)

    def abandon(self, shut_down: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End the thread of a client that was dropped, after `shut_down` has freed what the client owns.

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

    def _turn(self) -> None:
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
            self._stopped = True  # even where a callback ended the thread: nobody may wait for it any more
            self.loop.close()
            self._give_up()
            atexit.unregister(self._thread.join)

    def forked(self) -> None:
        """This is the child of a fork, where the thread does not exist."""
        self._stopped = self._forked = True
        atexit.unregister(self.stop)
        on_fork = self._on_fork and self._on_fork()
        if on_fork is not None:
            on_fork()

    def _give_up(self) -> None:
        """No wait outlives the loop that would end it."""
        for future in list(self._awaited):
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                future.set_exception(_closed_meanwhile())


class _Errand(Generic[T]):
    """A coroutine whose result may be lost: only the loop knows which comes first, that or the interruption."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], on_lost: Callable[[T], object]) -> None:
        self.coroutine = coroutine
        self._on_lost = on_lost
        self._task: asyncio.Task[Any] | None = None
        self._results: list[T] = []
        self._given_up = False
        self.calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def await_result(self, future: concurrent.futures.Future[T], timeout_s: float | None) -> T:
        """In the thread that waits, and that does what the coroutine asks of it meanwhile; that time is not counted."""
        future.add_done_callback(lambda _: self.calls.put(None))
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                call = self.calls.get(timeout=bearable_s(None if deadline is None else deadline - time.monotonic()))
            except queue.Empty:
                return future.result(0)
            if call is None:
                return future.result(0)
            began = time.monotonic()
            call()
            if deadline is not None:
                deadline += time.monotonic() - began

    async def go(self) -> T:
        self._task = asyncio.current_task()
        _errand.set(self)
        result = await self.coroutine
        if self._given_up:
            self._on_lost(result)
        self._results.append(result)
        return result

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self._given_up = True
        if self._task is not None:
            self._task.cancel()
        for result in self._results:
            self._on_lost(result)


#: On whose behalf the running task works.
_errand: contextvars.ContextVar[_Errand[Any] | None] = contextvars.ContextVar("errand", default=None)


def _refuse_coroutine(result: object) -> None:
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("a coroutine function cannot be called back here: it needs the client of tidelog.aio")


#: Those that run in this process.
_threads: set[IoThread] = set()


def _after_fork() -> None:
    for thread in list(_threads):
        thread.forked()
    _threads.clear()


os.register_at_fork(after_in_child=_after_fork)


def _closed_meanwhile() -> ClosedError:
    return ClosedError("the client was closed meanwhile")

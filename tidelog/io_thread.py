"""One daemon thread that runs an event loop: where the synchronous clients do their I/O."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from tidelog.errors import ClosedError, TimeoutError

T = TypeVar("T")

#: What a wait allows on top of the coroutine's own deadline, which speaks better about what is missing.
GRACE_S = 5.0
_STOP_S = 5.0


class IoThread:
    """Belongs to the process that made it; a fork's child has to make its own."""

    def __init__(self, name: str = "tidelog-io") -> None:
        self._pid = os.getpid()
        self._stopped = False
        self._awaited: set[concurrent.futures.Future[Any]] = set()
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name=name, daemon=True)
        self._thread.start()
        # For a client that nobody closed: a loop that still turns while the interpreter goes can crash it.
        atexit.register(self.stop)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """The coroutine's result. The wait can be interrupted (Ctrl-C), which cancels the coroutine."""
        if self._stopped or os.getpid() != self._pid:
            coroutine.close()
            raise ClosedError(
                "the client is closed"
                if os.getpid() == self._pid
                else "the client was made before a fork; make another"
            )
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a synchronous client was called from its own callback, which would wait for itself")
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:  # the loop was closed this very moment
            coroutine.close()
            raise _closed_meanwhile() from None
        self._awaited.add(future)
        try:
            if self.loop.is_closed():
                self._give_up()  # it may not have seen this one
            return future.result(None if timeout_s is None else timeout_s + GRACE_S)
        except concurrent.futures.CancelledError:
            raise _closed_meanwhile() from None
        except BaseException as error:
            if not future.done():
                future.cancel()
                if isinstance(error, concurrent.futures.TimeoutError):
                    raise TimeoutError(f"no outcome within {timeout_s} s") from None
            raise
        finally:
            self._awaited.discard(future)

    def call(self, function: Callable[[], object]) -> None:
        """Have the loop call `function` soon; nothing happens once the thread has stopped."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            if not self._stopped:
                raise

    def stop(self) -> None:
        """Cancel what still runs, close the loop, end the thread. Idempotent."""
        if self._stopped or os.getpid() != self._pid:
            return
        self._stopped = True
        atexit.unregister(self.stop)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_STOP_S)

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

    def _give_up(self) -> None:
        """No wait outlives the loop that would end it."""
        for future in list(self._awaited):
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                future.set_exception(_closed_meanwhile())


def _closed_meanwhile() -> ClosedError:
    return ClosedError("the client was closed meanwhile")

"""Run the background tasks of a client, and report their failures to its user.

A task handles the errors that it expects. Any other exception is a defect of this client, with these consequences:

-   The exception is logged with its traceback, once for each series of failures with the same type of exception.
-   The next call of the user that asks for failures raises an InternalError, whose cause is the exception.
-   The work starts again only after a pause. The pauses grow from `retry_backoff_ms` to a second, or to
    `retry_backoff_max_ms` if that is longer.

The task itself (`task.done()`) shows whether work is running. A flag could not, because a task that is cancelled from
outside may end before it resets the flag.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tidelog.errors import ClosedError, InternalError

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: A supervised task that ran for longer has recovered: its next failure is logged again, after a short pause.
_RECOVERED_S = 5.0


class Background:
    """The background tasks of one client, and the first failure that no call has raised yet."""

    def __init__(self, backoff_ms: Callable[[int], int]) -> None:
        self.backoff_ms = backoff_ms
        self._wakers: list[Callable[[], object]] = []
        self._failure: InternalError | None = None
        self._logged: dict[str, type[BaseException]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def subscribe(self, wake: Callable[[], object]) -> None:
        """Have `wake` called after each failure, so that waiting calls of the user wake up and raise it."""
        self._wakers.append(wake)

    @property
    def has_failed(self) -> bool:
        """Return whether `raise_failure` would raise."""
        return self._failure is not None

    def raise_failure(self) -> None:
        """Raise the first failure that no call has raised yet, if there is one, and forget it."""
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure

    def log(self, what: str, error: BaseException) -> InternalError:
        """Log the unexpected error of `what`, and return an InternalError with it as the cause; raise nothing.

        The error is not logged if the last failure of `what` had the same type, and no success was noted since.
        """
        if self._logged.get(what) is not type(error):
            self._logged[what] = type(error)
            _log.error("%s failed unexpectedly; it is tried again", what, exc_info=error)
        failure = InternalError(f"{what} failed unexpectedly: {error!r}")
        failure.__cause__ = error
        return failure

    def report(self, what: str, error: BaseException) -> InternalError:
        """Log the unexpected error of `what`, wake waiting calls, and return its InternalError.

        `raise_failure` raises that InternalError in the user's next call, unless an earlier failure is still to be
        raised.
        """
        failure = self.log(what, error)
        self._failure = self._failure or failure
        for wake in self._wakers:
            wake()
        return failure

    def is_failing(self, what: str) -> bool:
        """Return whether the last attempt at `what` failed unexpectedly: no success was noted since."""
        return what in self._logged

    def recovered(self, what: str) -> None:
        """Note that `what` works again, so that its next failure is logged, whatever its type."""
        self._logged.pop(what, None)

    def run(
        self, what: str, work: Coroutine[Any, Any, T], foreseen: tuple[type[BaseException], ...] = ()
    ) -> asyncio.Task[T]:
        """Start `work` once and return its task, which `cancel` cancels.

        An exception is reported, unless it is ClosedError, InternalError or one of `foreseen`; these are left to the
        code that waits for the task's result.
        """
        task = asyncio.create_task(work, name=what)
        self._tasks.add(task)

        def ended(_: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                return
            error = task.exception()
            if error is None:
                self.recovered(what)
            elif not isinstance(error, (ClosedError, InternalError, *foreseen)):
                self.report(what, error)

        task.add_done_callback(ended)
        return task

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel the tasks of `run` that have not ended, and return them so that the caller may wait for their end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks


class SupervisedTask:
    """Runs `work` as a task from `start` until `cancel`, and starts it again if it fails or is cancelled from outside.

    Failures are reported, except InternalError, which another task has reported. Work that returns is not started
    again. A timer starts the work again, so that nothing starts while `asyncio.run` cancels all tasks at its end.
    """

    def __init__(self, background: Background, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._background = background
        self._what = what
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._began_s = 0.0
        self._attempts = 0

    @property
    def is_running(self) -> bool:
        """Return whether the task is alive; False during the pause before a restart."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin, unless the work is running or about to start again. Needs the running loop."""
        if not self.is_running and self._restart is None:
            self._begin()

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel the task and its restart; return the task, if there is one, so that the caller may wait for its end.

        `start` may begin the work anew.
        """
        task, self._task = self._task, None
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        if task is None:
            return []
        task.cancel()
        return [task]

    async def stop(self) -> None:
        """Cancel the task and its restart, and wait until the task has ended."""
        await asyncio.gather(*self.cancel(), return_exceptions=True)

    def _begin(self) -> None:
        self._restart = None
        self._began_s = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._work(), name=self._what)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if task is not self._task:  # `cancel` ended it
            return
        loop = task.get_loop()
        if loop.time() - self._began_s > _RECOVERED_S:
            self._attempts = 0
            self._background.recovered(self._what)
        if isinstance(error, InternalError):
            pass  # another task has reported it
        elif error is not None:
            self._background.report(self._what, error)
        elif task.cancelled():
            _log.info("%s was cancelled from outside; it starts again", self._what)
        else:
            return
        self._restart = loop.call_later(self._background.backoff_ms(self._attempts) / 1000, self._begin)
        self._attempts += 1

"""The task that polls, as seen by the group: it enters `poll`, runs callbacks there, and leaves `poll`.

The assignment changes, the listener is called and errors are raised only in `poll`, in the user's own task. So none of
this happens between two records that the user is processing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tidelog.clock import Clock

Callback = Callable[[], Awaitable[None]]


class PollTask:
    """Knows whether the user is in `poll`, and hands callbacks to it.

    wake   wakes a `poll` that waits for records
    """

    def __init__(self, clock: Clock, max_poll_interval_ms: int, wake: Callable[[], object]) -> None:
        self._clock = clock
        self._max_poll_interval_ms = max_poll_interval_ms
        self._wake = wake
        self._callbacks: deque[tuple[Callback, asyncio.Future[None]]] = deque()
        self._in_poll = False
        self._left_ms = clock.monotonic_ms()

    @property
    def overdue_ms(self) -> int:
        """How long the next poll is overdue (`max_poll_interval_ms`); at most 0 if it is not, or during a poll."""
        away_ms = 0 if self._in_poll else self._clock.monotonic_ms() - self._left_ms
        return away_ms - self._max_poll_interval_ms

    def enter_poll(self) -> None:
        """Note that the user has entered `poll`."""
        self._in_poll = True

    def leave_poll(self) -> None:
        """Note that the user has left `poll`, or that a listener runs: the time until the next poll counts from now."""
        self._in_poll, self._left_ms = False, self._clock.monotonic_ms()

    async def run_in_poll(self, callback: Callback) -> None:
        """Return when a `poll` has run the callback. The error of the callback is raised by that `poll`, not here."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._callbacks.append((callback, done))
        self._wake()
        await done

    async def run_callbacks(self) -> None:
        """Run the waiting callbacks in order, in the task that polls.

        The error of a callback is raised here, and the later callbacks wait for the next call.
        """
        while self._callbacks:
            callback, done = self._callbacks.popleft()
            if done.cancelled():
                continue
            try:
                await callback()
            finally:
                if not done.done():
                    done.set_result(None)

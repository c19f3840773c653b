"""The task that reads, as its group sees it: it comes to `poll`, does what only it can do there, and goes away again.

What may change what a reader was shown (its assignment, its listener's calls, errors) happens while it is in `poll`, in
its own task, and so never between two records that it is working on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tidelog.clock import Clock

Callback = Callable[[], Awaitable[None]]


class PollTask:
    """`wake` makes a reader that waits in `poll` look for errands."""

    def __init__(self, clock: Clock, max_poll_interval_ms: int, wake: Callable[[], object]) -> None:
        self._clock = clock
        self._max_poll_interval_ms = max_poll_interval_ms
        self._wake = wake
        self._errands: deque[tuple[Callback, asyncio.Future[None]]] = deque()
        self._present = False
        self._seen_ms = clock.monotonic_ms()

    @property
    def overdue_ms(self) -> int:
        """How much longer it has been away than it may; ≤ 0: it is in time."""
        away_ms = 0 if self._present else self._clock.monotonic_ms() - self._seen_ms
        return away_ms - self._max_poll_interval_ms

    def come(self) -> None:
        """It is in `poll`."""
        self._present = True

    def go(self) -> None:
        """It is out of it, or in its user's code."""
        self._present, self._seen_ms = False, self._clock.monotonic_ms()

    async def have(self, errand: Callback) -> None:
        """Returns when it has run the errand; what that raised is the reader's to see."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._errands.append((errand, done))
        self._wake()
        await done

    async def run_errands(self) -> None:
        """The reader's part: do all that there is."""
        while self._errands:
            errand, done = self._errands.popleft()
            if done.cancelled():
                continue
            try:
                await errand()
            finally:
                if not done.done():
                    done.set_result(None)

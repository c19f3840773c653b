"""Record how the cluster's state changed during a run: query it repeatedly, and keep each state that differs from the
last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from tidelog.errors import TidelogError
from verify.chaos.fault import View

_LOOK_EVERY_S = 0.1

#: Returns the current view of the cluster. Raises TidelogError if ZooKeeper does not answer.
Look = Callable[[], Awaitable[View]]


class Views:
    """The views of a cluster. `seen` has them in order of time, each different from the one before in more than its
    time.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self.seen: list[View] = []

    async def watch(self) -> None:
        """Query the cluster every 0.1 s until the task is cancelled. Queries without an answer are skipped."""
        while True:
            with suppress(TidelogError):
                await self.now()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def now(self) -> View:
        """Query the cluster and return the view. Append the view to `seen` if it differs from the last one in more than
        its time.

        Raise TidelogError if ZooKeeper does not answer.
        """
        view = await self._look()
        if not self.seen or replace(view, t=0) != replace(self.seen[-1], t=0):
            self.seen.append(view)
        return view

    def between(self, begin: int, end: int) -> list[View]:
        """Return the views from `begin` to `end`, preceded by the last view before, if any. Times are monotonic
        nanoseconds.

        The list is empty if there is no view until `end`.
        """
        until = [view for view in self.seen if view.t <= end]
        first = next((place for place in range(len(until) - 1, -1, -1) if until[place].t <= begin), 0)
        return until[first:]

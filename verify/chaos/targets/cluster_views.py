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

#: Returns the current view of the cluster. Raises TidelogError if no server answers.
Look = Callable[[], Awaitable[View]]


class Views:
    """The views in order of time, each different from the one before."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.seen: list[View] = []

    async def watch(self) -> None:
        """Query the cluster until the task is cancelled."""
        while True:
            with suppress(TidelogError):
                await self.now()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def now(self) -> View:
        """Query the cluster once. Raise TidelogError if no server answers."""
        view = await self._look()
        if not self.seen or replace(view, t=0) != replace(self.seen[-1], t=0):
            self.seen.append(view)
        return view

    def between(self, begin: int, end: int) -> list[View]:
        """Return the views of that time, preceded by the view that was current at its begin. The list is empty without
        views.
        """
        until = [view for view in self.seen if view.t <= end]
        first = next((place for place in range(len(until) - 1, -1, -1) if until[place].t <= begin), 0)
        return until[first:]

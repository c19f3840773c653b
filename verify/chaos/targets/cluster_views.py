"""How the cluster changed in the course of a run: looked at time and again, and kept whenever it looks different."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from tidelog.errors import TidelogError
from verify.chaos.fault import View

_LOOK_EVERY_S = 0.1

#: The cluster now; TidelogError where nobody answers.
Look = Callable[[], Awaitable[View]]


class Views:
    """All that was seen, in the order of time, each different from the one before."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.seen: list[View] = []

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            with suppress(TidelogError):
                await self.now()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def now(self) -> View:
        """Looks at once; TidelogError where nobody answers."""
        view = await self._look()
        if not self.seen or replace(view, t=0) != replace(self.seen[-1], t=0):
            self.seen.append(view)
        return view

    def between(self, begin: int, end: int) -> list[View]:
        """Those of that time, and first what was seen when it began. Empty where nothing was ever seen."""
        until = [view for view in self.seen if view.t <= end]
        first = next((place for place in range(len(until) - 1, -1, -1) if until[place].t <= begin), 0)
        return until[first:]

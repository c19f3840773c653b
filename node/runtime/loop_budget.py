"""Limit how long one iteration of the event loop waits for disks.

Appends and truncations run on the event loop, because they usually only write into the kernel's memory. If a disk
cannot keep up, they block. Then at most one of them runs per iteration of the loop, so that heartbeats and other
requests run in between.
"""

from __future__ import annotations

import asyncio
from typing import Final

#: An append takes longer only if its disk cannot keep up.
_LONG_MS: Final = 20


class LoopBudget:
    """The budget of one iteration of the loop.

    exhausted   the loop has waited for a disk in this iteration, so that other work for disks waits for the next one
    waits       the number of waits for a disk so far; a caller that cannot yield compares it to see whether its own
                work has waited
    """

    def __init__(self) -> None:
        self.exhausted = False
        self.waits = 0

    def charge(self, ms: int) -> None:
        """Exhaust the budget until the next iteration if `ms`, the time of work for a disk on the loop, is above 20."""
        if ms <= _LONG_MS:
            return
        self.waits += 1
        if not self.exhausted:
            self.exhausted = True
            asyncio.get_running_loop().call_soon(self._renew)

    async def yield_(self) -> None:
        """Wait for an iteration of the loop whose budget is not exhausted. Return at once if this one's is not."""
        while self.exhausted:  # noqa: ASYNC110 - the next iteration of the loop renews the budget
            await asyncio.sleep(0)

    def _renew(self) -> None:
        self.exhausted = False

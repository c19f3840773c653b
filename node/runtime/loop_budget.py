"""How much one turn of the event loop may wait for disks.

Appends are writes into the kernel's memory, and are made on the loop, as is what takes old records out of a log. A disk
that cannot keep up makes them wait: then one is made in a turn, so that the loop still turns, and whatever keeps the
broker alive goes on between them.
"""

from __future__ import annotations

import asyncio
from typing import Final

#: What an append does not take whose disk keeps up.
_LONG_MS: Final = 20


class LoopBudget:
    """How it is kept.

    busy     in this turn a disk was waited for, so that whoever can has to wait until the next one
    waits    how often a disk was waited for: it tells whoever cannot wait for a turn whether it was its own work
    """

    def __init__(self) -> None:
        self.exhausted = False
        self.waits = 0

    def charge(self, ms: int) -> None:
        """What was done on the loop for a disk took so long."""
        if ms <= _LONG_MS:
            return
        self.waits += 1
        if not self.exhausted:
            self.exhausted = True
            asyncio.get_running_loop().call_soon(self._turned)

    async def yield_(self) -> None:
        """Returns in a turn in which no disk was waited for yet."""
        while self.exhausted:  # noqa: ASYNC110 - the next turn is what is waited for
            await asyncio.sleep(0)

    def _turned(self) -> None:
        self.exhausted = False

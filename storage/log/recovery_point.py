"""Up to where a log is on the disk, and when more of it must get there.

    flush.messages=N   as soon as N records are not synced; with 1 an acknowledgement waits for it (DESIGN 3)
    flush.ms=T         when a record has waited for T ms (`storage.log_maintenance`)
    on demand          at a clean shutdown, and before anything relies on it

Syncs of one log come one after the other (`Log.flush`). Who asks for one while another runs gets what has been appended
meanwhile synced together: a hundred appends that arrive during a sync cost one more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def must_flush(unflushed: int, flush_messages: int) -> bool:
    """By number of records."""
    return unflushed >= flush_messages


class RecoveryPoint:
    """All below `offset` is synced. Raised by `advance` on any thread, one at a time, lowered by the log's owner."""

    __slots__ = ("_cuts", "_state", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._cuts = 0
        self._state = threading.Lock()

    def lower(self, offset: int) -> None:
        """What lies above is, or is about to be, another thing than what a running sync may have synced.

        To be called before a truncation and after it.
        """
        with self._state:
            self._cuts += 1
            self.offset = min(offset, self.offset)

    def advance(self, target: Callable[[], int], sync: Callable[[int, int], None]) -> bool:
        """Has `sync(start, end)` sync what is missing up to `target()`; False where nothing is.

        The recovery point stays where it is when `sync` fails, or when a truncation came between.
        """
        with self._state:
            truncation_count, start, end = self._cuts, self.offset, target()
        if end <= start:
            return False
        sync(start, end)
        with self._state:
            if truncation_count == self._cuts:
                self.offset = max(self.offset, end)
        return True

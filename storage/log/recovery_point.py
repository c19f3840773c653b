"""The offset up to which a log is flushed, and the rules that say when to flush.

    flush.messages=N   as soon as N records are not flushed; with N=1 an acknowledgement waits for the flush
    flush.ms=T         when a record has waited for T ms (`storage.log_maintenance`)
    on demand          at a clean shutdown, and before a result depends on flushed data

Flushes of one log run one after the other (`Log.flush`). A request that waits for a running flush also covers all
records appended meanwhile. A hundred appends that arrive during a flush therefore cost one more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def must_flush(unflushed: int, flush_messages: int) -> bool:
    """Return whether at least `flush.messages` records are unflushed."""
    return unflushed >= flush_messages


class RecoveryPoint:
    """The offset below which all records are flushed.

    `advance` raises it, on any thread, one call at a time. The log's owner lowers it.
    """

    __slots__ = ("_state", "_truncations", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._truncations = 0
        self._state = threading.Lock()

    def lower(self, offset: int) -> None:
        """Lower the offset, because records above it are, or are about to be, replaced by others.

        Called before a truncation and after it. A running flush then cannot raise the offset again.
        """
        with self._state:
            self._truncations += 1
            self.offset = min(offset, self.offset)

    def advance(self, target: Callable[[], int], flush: Callable[[int, int], None]) -> bool:
        """Call `flush(start, end)` for the unflushed records below `target()`, then raise the offset to that target.

        Return False, without a flush, if there are none. The offset does not move if `flush` raises, or if `lower` was
        called meanwhile.
        """
        with self._state:
            truncation_count, start, end = self._truncations, self.offset, target()
        if end <= start:
            return False
        flush(start, end)
        with self._state:
            if truncation_count == self._truncations:
                self.offset = max(self.offset, end)
        return True

"""Up to where a log is on the disk, and when more of it must get there.

    flush.messages=N   as soon as N records are not synced; with 1 an acknowledgement waits for it (DESIGN 3)
    flush.ms=T         at the first look after T ms, see `FlushTimer`
    on demand          at a clean shutdown, and before anything relies on it

Syncs of one log come one after the other. Who asks for one while another runs gets what has been appended meanwhile
synced together: a hundred appends that arrive during a sync cost one more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def must_flush(unflushed: int, flush_messages: int) -> bool:
    """By number of records."""
    return unflushed >= flush_messages


class FlushTimer:
    """When `flush.ms` asks for a flush of one log.

    The time counts from the first look that finds something unsynced which the look before did not know; so what is
    appended is synced within the setting and twice the time between two looks.
    """

    __slots__ = ("_recovery_point", "_waiting_since_ms")

    def __init__(self) -> None:
        self._recovery_point = -1
        self._waiting_since_ms: int | None = None

    def is_due(self, recovery_point: int, log_end_offset: int, flush_ms: int, now_ms: int) -> bool:
        """To be asked now and then; `now_ms` does not go back."""
        if recovery_point >= log_end_offset:
            self._waiting_since_ms = None
            return False
        if self._waiting_since_ms is None or recovery_point != self._recovery_point:
            self._waiting_since_ms = now_ms
            self._recovery_point = recovery_point
        return now_ms - self._waiting_since_ms >= flush_ms


class RecoveryPoint:
    """All below `offset` is synced. Raised by `advance` on any thread, lowered by the log's owner."""

    __slots__ = ("_cuts", "_one_at_a_time", "_state", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._cuts = 0
        self._state = threading.Lock()
        self._one_at_a_time = threading.Lock()

    def lower(self, offset: int) -> bool:
        """What lies above is, or is about to be, another thing than what a running sync may have synced.

        To be called before a truncation and after it. True where the recovery point was above.
        """
        with self._state:
            self._cuts += 1
            lowered = offset < self.offset
            self.offset = min(offset, self.offset)
            return lowered

    def advance(self, target: Callable[[], int], sync: Callable[[int, int], None]) -> bool:
        """Has `sync(start, end)` sync what is missing up to `target()`; False where nothing is.

        The recovery point stays where it is when `sync` fails, or when a truncation came between.
        """
        with self._one_at_a_time:
            with self._state:
                cuts, start, end = self._cuts, self.offset, target()
            if end <= start:
                return False
            sync(start, end)
            with self._state:
                if cuts == self._cuts:
                    self.offset = max(self.offset, end)
            return True

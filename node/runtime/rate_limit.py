"""Limit the bytes per second of work whose size is known only after it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable

from storage.configs.parsers import INT64_MAX

#: The longest pause of a throttle of replicas. Traffic of throttled replicas that are in sync never pauses, but counts.
#: Kafka averages over as much time: eleven samples of one second.
THROTTLE_MEMORY_MS = 11_000
#: The work that is allowed at once, as a part of the bytes of a second. Smaller pieces of work would wait one by one.
_AT_ONCE = 0.1


class RateLimit:
    """Says when more bytes may pass. Pure: the time (ms, monotonic) is passed in.

    Bytes that have passed are owed, and the rate works them off. More bytes may pass when none are owed. So the time
    from which they may pass is known, and no caller has to try again and again.

    rate        returns the bytes per second that are allowed now; INT64_MAX: any number, 0: none
    longest_ms  the longest pause. Bytes that pass without a pause count too, so that the pause of others would
                otherwise have no bound
    """

    __slots__ = ("_counted_ms", "_longest_ms", "_owed_bytes", "_rate")

    def __init__(self, rate: Callable[[], int], longest_ms: int = sys.maxsize) -> None:
        self._rate = rate
        self._longest_ms = longest_ms
        self._owed_bytes, self._counted_ms = 0.0, 0

    @property
    def is_set(self) -> bool:
        """Return whether there is a limit now."""
        return self._rate() < INT64_MAX

    def record(self, passed_bytes: int, since_ms: int) -> None:
        """Note bytes that have passed since `since_ms`. Idle time before it is not saved, so that no burst follows."""
        self.pause_ms(since_ms)
        self._owed_bytes += passed_bytes

    def pause_ms(self, now_ms: int) -> int:
        """Return after which time more bytes may pass, at the present rate; 0: now.

        A rest below 1 ms is added to the next pause, because clocks count whole milliseconds.
        """
        rate = self._rate()
        if not rate:
            return self._longest_ms
        left_ms = self._owed_bytes * 1000 / rate - max(0, now_ms - self._counted_ms)
        left_ms = min(max(left_ms, 0), self._longest_ms)
        self._owed_bytes, self._counted_ms = left_ms * rate / 1000, max(now_ms, self._counted_ms)
        return int(left_ms)

    def allowance(self, now_ms: int) -> int:
        """Return the bytes that may pass at once now: at least 1 if no pause is needed, else 0."""
        return 0 if self.pause_ms(now_ms) else max(1, int(self._rate() * _AT_ONCE))

"""Limits background work, so that it does not delay the thread that answers requests."""

from __future__ import annotations

from collections.abc import Callable

#: A thread that waits for Python's interpreter lock gets it only after 5 ms, which delays each answer. A thread that
#: sleeps releases the lock at once.
_WORK_NS = 1_000_000
_SLEEP_NS = 500_000


class Throttle:
    """Sleeps as needed when it is called with the number of bytes just moved. For one thread.

    Each call sleeps if a millisecond of work has passed since the last sleep, and while more bytes were moved than
    `bytes_per_second` allows.
    """

    def __init__(self, bytes_per_second: int, now_ns: Callable[[], int], sleep_s: Callable[[float], object]) -> None:
        """`now_ns` is a monotonic clock."""
        self._ns_per_byte = 1_000_000_000 / bytes_per_second
        self._now_ns = now_ns
        self._sleep_s = sleep_s
        self._slept_ns = self._paid_ns = now_ns()

    def __call__(self, moved_bytes: int) -> None:
        now_ns = self._now_ns()
        # Idle time does not allow a later burst.
        self._paid_ns = max(self._paid_ns, self._slept_ns) + int(moved_bytes * self._ns_per_byte)
        pause_ns = max(self._paid_ns - now_ns, _SLEEP_NS if now_ns - self._slept_ns >= _WORK_NS else 0)
        if pause_ns > 0:
            self._sleep_s(pause_ns / 1e9)
            self._slept_ns = self._now_ns()

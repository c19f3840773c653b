"""Keeping work on a side thread out of the way of the thread that must answer."""

from __future__ import annotations

from collections.abc import Callable

#: Python hands the interpreter on only every 5 ms to a thread that waits for it, which an answer would feel each time;
#: a thread that sleeps hands it on at once.
_TURN_NS = 1_000_000
_REST_NS = 500_000


class Throttle:
    """Called with the bytes that were just moved, it sleeps where that is due: after every millisecond of work, and as
    long as more bytes were moved than `bytes_per_second` allows since the start. For one thread.
    """

    def __init__(self, bytes_per_second: int, now_ns: Callable[[], int], sleep_s: Callable[[float], object]) -> None:
        """`now_ns` is a clock that only goes forward."""
        self._ns_per_byte = 1_000_000_000 / bytes_per_second
        self._now_ns = now_ns
        self._sleep_s = sleep_s
        self._rested_ns = self._paid_ns = now_ns()

    def __call__(self, moved_bytes: int) -> None:
        now_ns = self._now_ns()
        # Time in which nothing was moved is not saved up for a burst later on.
        self._paid_ns = max(self._paid_ns, self._rested_ns) + int(moved_bytes * self._ns_per_byte)
        rest_ns = max(self._paid_ns - now_ns, _REST_NS if now_ns - self._rested_ns >= _TURN_NS else 0)
        if rest_ns > 0:
            self._sleep_s(rest_ns / 1e9)
            self._rested_ns = self._now_ns()

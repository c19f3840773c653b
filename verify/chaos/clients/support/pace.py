"""Compute how many operations are due at a fixed rate, however irregular the calls are. Times are nanoseconds."""

from __future__ import annotations

_SECOND_NS = 1_000_000_000


class Pace:
    """The rate limiter of `rate` operations per second from `began` on.

    Delayed operations are due later, up to those of one second per call. `left_out` counts the others, which are never
    due.
    """

    def __init__(self, rate: float, began: int) -> None:
        self._rate = rate
        self._began = began
        self._given = 0
        self.left_out = 0

    def due(self, now: int) -> int:
        """Return how many operations are due since the last call; 0: none. The caller must perform them."""
        behind = int((now - self._began) * self._rate / _SECOND_NS) - self._given
        if behind <= 0:
            return 0
        given = min(behind, max(1, int(self._rate)))
        self._given += behind
        self.left_out += behind - given
        return given

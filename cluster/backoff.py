"""Exponential backoff between retries."""

from __future__ import annotations

MIN_BACKOFF_MS = 20
MAX_BACKOFF_MS = 1000


class Backoff:
    """Delays that double from `least_ms` to `most_ms` with each consecutive failure."""

    __slots__ = ("_least_ms", "_most_ms", "_next_ms")

    def __init__(self, least_ms: int = MIN_BACKOFF_MS, most_ms: int = MAX_BACKOFF_MS) -> None:
        self._least_ms = least_ms
        self._most_ms = most_ms
        self._next_ms = least_ms

    def next_ms(self) -> int:
        """Return the delay (ms) after one more failure, and double the next one up to the greatest delay."""
        delay_ms = self._next_ms
        self._next_ms = min(2 * delay_ms, self._most_ms)
        return delay_ms

    def reset(self) -> None:
        """Start again from the shortest delay, because an attempt succeeded."""
        self._next_ms = self._least_ms

"""A clock that the test sets by hand."""

from __future__ import annotations

from tidelog.clock import SystemClock


class HandClock(SystemClock):
    """A clock whose monotonic time is `at_ms`."""

    def __init__(self) -> None:
        self.at_ms = 0

    def monotonic_ms(self) -> int:
        return self.at_ms

"""A clock that stands where the test puts it."""

from __future__ import annotations

from tidelog.clock import SystemClock


class HandClock(SystemClock):
    """Its monotonic time is `at_ms`."""

    def __init__(self) -> None:
        self.at_ms = 0

    def monotonic_ms(self) -> int:
        return self.at_ms

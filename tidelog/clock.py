"""Read the machine's clocks for all code that takes the time from a `Clock`."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: the wall clock, for timestamps, and a monotonic clock, for every wait and deadline."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 on the wall clock."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds on a clock that never goes back; only differences of two readings have a meaning."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def bearable_s(timeout_s: float | None) -> float:
    """Return the timeout in seconds that locks and queues accept, because they raise for longer ones.

    A negative timeout becomes 0. None (no limit) and longer ones become `threading.TIMEOUT_MAX`.
    """
    return threading.TIMEOUT_MAX if timeout_s is None else min(max(0.0, timeout_s), threading.TIMEOUT_MAX)

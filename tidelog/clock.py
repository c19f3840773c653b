"""Read the machine's clocks; the only module that does."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: the wall clock, for record timestamps only, and a monotonic clock, for every wait."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 on the wall clock."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds on a clock that never goes back; its zero has no meaning."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def bearable_s(timeout_s: float | None) -> float:
    """Return a timeout that locks and queues accept, because they raise for longer ones (None: no limit)."""
    return threading.TIMEOUT_MAX if timeout_s is None else min(max(0.0, timeout_s), threading.TIMEOUT_MAX)

"""The one place that asks what time it is."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: the wall's, for record timestamps only, and one that never jumps, for every wait."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as the machine believes."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that only goes forward; its zero means nothing."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def bearable_s(timeout_s: float | None) -> float:
    """So long a thread may wait at a time: locks and queues raise where they are asked for more (None: no limit)."""
    return threading.TIMEOUT_MAX if timeout_s is None else min(max(0.0, timeout_s), threading.TIMEOUT_MAX)

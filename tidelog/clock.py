"""The one place that asks what time it is."""

from __future__ import annotations

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

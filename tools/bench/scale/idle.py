"""Measures the CPU of brokers while nothing, or little, happens."""

from __future__ import annotations

import time
from collections.abc import Collection

from tools.bench import machine

SETTLE_S = 8.0
WATCH_S = 15.0


def cpu_percent(pids: Collection[int]) -> float:
    """Return the CPU of all these processes in % of a core, over WATCH_S after earlier work has had SETTLE_S to end."""
    time.sleep(SETTLE_S)
    before, started = machine.cpu_time(pids), time.monotonic()
    time.sleep(WATCH_S)
    return 100 * machine.cpu_time(pids).since(before).total / (time.monotonic() - started)

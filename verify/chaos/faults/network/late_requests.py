"""Implement F32: requests that waited in a queue until their senders had given up."""

from __future__ import annotations

import random
import time

from verify.chaos.fault import Evidence, Target
from verify.chaos.faults.processes import Zombie
from verify.chaos.faults.support import bite_detection
from verify.chaos.faults.support.client_endpoints import client_endpoints, unread_bytes
from verify.chaos.faults.support.fault_base import Timing


class StaleQueues(Zombie):
    """Requests sent to a leader that is paused for ten seconds. The leader receives them when it continues, after their
    senders have given up.

    A Produce request of Kafka's protocol has no deadline. So the leader appends late records before it learns that it
    was replaced, and removes them when it follows its successor.

    A cut cannot cause this, because a client closes a connection whose peer acknowledges nothing for eight seconds, and
    bytes that never arrived are lost. While a process is paused, the kernel of its machine still accepts requests.
    """

    row, name = "F32", "queued requests arrive late"
    lasts_ms = (10_000, 10_500)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._woken_at = self._queued_bytes = 0

    async def inject(self, target: Target, rng: random.Random) -> str:
        endpoints = await client_endpoints(target)
        what = await super().inject(target, rng)
        (victim,) = self.victims

        async def look() -> None:
            self._queued_bytes = unread_bytes(target.broker_process(victim).pid, endpoints[victim].port)
            self._woken_at = time.monotonic_ns()

        self.on_heal(look)  # before the process continues, because heal steps run last first
        return what

    def bit(self, evidence: Evidence) -> str | None:
        if not self._queued_bytes:
            return None
        removed = bite_detection.removed_own_records(evidence, self.victims, self._woken_at)
        return f"{removed}; {self._queued_bytes:,} bytes of requests had waited for it" if removed else None

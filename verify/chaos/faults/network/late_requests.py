"""Implement F32: requests that waited in a queue until their deadline had passed."""

from __future__ import annotations

import random
import time

from verify.chaos.fault import Evidence, Target
from verify.chaos.faults.processes import Zombie
from verify.chaos.faults.support import bite_detection
from verify.chaos.faults.support.fault_base import Timing


class StaleQueues(Zombie):
    """Requests sent to a leader that is paused for ten seconds. The leader receives them when it continues, after their
    deadline.

    A cut cannot cause this, because both ends close a connection without traffic after four seconds. That is before the
    deadline of any produce request, and queued requests are lost. While a process is paused, the kernel of its machine
    still accepts requests.
    """

    row, name = "F32", "queued requests arrive late"
    lasts_ms = (10_000, 10_500)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._woken_at = 0

    async def inject(self, target: Target, rng: random.Random) -> str:
        what = await super().inject(target, rng)
        self.on_heal(self._note_when)  # before the process continues, because heal steps run last first
        return what

    async def _note_when(self) -> None:
        self._woken_at = time.monotonic_ns()

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.refused_late(evidence, self.victims, self._woken_at) if self._woken_at else None

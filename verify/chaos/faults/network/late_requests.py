"""F32: requests that waited in a queue until nobody waited for their answers any more."""

from __future__ import annotations

import random
import time

from verify.chaos.fault import Evidence, Target
from verify.chaos.faults.processes import Zombie
from verify.chaos.faults.support import bite_detection
from verify.chaos.faults.support.fault_base import Timing


class StaleQueues(Zombie):
    """What was sent to a leader that sleeps for ten seconds is there when it wakes up, and comes after its deadline.

    No cut can do this: both ends give up a connection over which nothing comes within four seconds, and what waited in
    it goes with it, before the deadline of any produce. While a process sleeps, its machine takes what is sent to it.
    """

    row, name = "F32", "queued requests arrive late"
    lasts_ms = (10_000, 10_500)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._woken_at = 0

    async def inject(self, target: Target, dice: random.Random) -> str:
        what = await super().inject(target, dice)
        self.mend(self._note_when)  # before it wakes up: the last mend is the first that is done
        return what

    async def _note_when(self) -> None:
        self._woken_at = time.monotonic_ns()

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.refused_late(evidence, self.victims, self._woken_at) if self._woken_at else None

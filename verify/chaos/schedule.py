"""Order the faults of a run. The order depends only on the seed, the rows and their numbers of fault kinds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

#: The range of pauses before a fault, so that faults hit the cluster in different states.
_PAUSE_MS = (0, 1_500)


@dataclass(frozen=True, slots=True)
class Step:
    """One injection.

    number    the position in the schedule, from 0
    kind      the index among the fault kinds of the row; the runner takes the index modulo the number of kinds that
              can be injected here
    span      the position of the duration in the fault's own range, from 0 to 1
    pause_ms  the pause before the injection
    rng_seed  the seed of the fault's own random choices, such as its victims
    """

    number: int
    row: str
    kind: int
    span: float
    pause_ms: int
    rng_seed: int

    def lasts_ms(self, bounds: tuple[int, int]) -> int:
        """Return the duration in milliseconds for a fault with these least and greatest durations."""
        least, most = bounds
        return least + round(self.span * (most - least))

    def repeated(self) -> Step:
        """Return the step that repeats this one: the same kind of the same row, with other random choices.

        The choices depend only on those of this step, so that the rest of the schedule stays the same.
        """
        rng = random.Random(self.rng_seed)
        return replace(self, span=rng.random(), pause_ms=rng.randint(*_PAUSE_MS), rng_seed=rng.getrandbits(32))


def schedule(seed: int, rows: Sequence[str], kinds: Mapping[str, int]) -> Iterator[Step]:
    """Yield steps without end: each row once in random order, then all rows again in another order, and so on. Without
    rows, yield nothing.

    `kinds` maps each row to its number of fault kinds; a row with none counts as one. The kinds of a row take turns,
    and the first kind depends on the seed, so that a few consecutive seeds cover all kinds. A row that cannot be
    injected on this machine is scheduled as well, so that the rest of the schedule is the same on every machine.
    """
    rng = random.Random(seed)
    number = 0
    while rows:
        for row in rng.sample(list(rows), len(rows)):
            round_ = number // len(rows)
            kind = (seed + round_) % max(1, kinds.get(row, 0))
            yield Step(number, row, kind, rng.random(), rng.randint(*_PAUSE_MS), rng.getrandbits(32))
            number += 1

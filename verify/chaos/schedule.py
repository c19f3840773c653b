"""Which faults come in which order, drawn from the seed alone: the same seed, the same schedule."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

#: Between two faults, so that the cluster is not always hit in the same state.
_PAUSE_MS = (0, 1_500)


@dataclass(frozen=True, slots=True)
class Step:
    """One injection.

    kind     which of the row's faults, by its place in the catalogue
    span     where in the fault's own range its duration lies, from 0 to 1
    dice     the seed of what the fault itself draws: its victims, its moments
    """

    number: int
    row: str
    kind: int
    span: float
    pause_ms: int
    dice: int

    def lasts_ms(self, bounds: tuple[int, int]) -> int:
        """How long, for a fault that lasts so long at least and at most."""
        least, most = bounds
        return least + round(self.span * (most - least))


def schedule(seed: int, rows: Sequence[str], kinds: Mapping[str, int]) -> Iterator[Step]:
    """Without end: each row once in an order of the seed's, then all of them again in another, and so on.

    `kinds` says how many kinds of fault each row has (a row with none counts as one): they come in turn, from a first
    one that is another for the next seed, so that a few seeds in a row see all of them. A row that cannot be injected
    here is drawn all the same, so that what a machine lacks does not change the rest.
    """
    dice = random.Random(seed)
    number = 0
    while rows:
        for row in dice.sample(list(rows), len(rows)):
            round_ = number // len(rows)
            kind = (seed + round_) % max(1, kinds.get(row, 0))
            yield Step(number, row, kind, dice.random(), dice.randint(*_PAUSE_MS), dice.getrandbits(32))
            number += 1

"""Count how often each fault was drawn and had an effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class FaultCounts:
    """Counts of faults by name: the kind, and for some faults the victim and the event that the fault waits for.

    drawn    how often a simulation reached the fault's time, also if the event that the fault waits for never came
    bitten   how often the fault had an effect
    """

    drawn: Counter[str] = field(default_factory=Counter)
    bitten: Counter[str] = field(default_factory=Counter)

    def draw(self, names: Iterable[str]) -> None:
        self.drawn.update(names)

    def bite(self, names: Iterable[str]) -> None:
        self.bitten.update(names)

    def add(self, other: FaultCounts) -> None:
        self.drawn.update(other.drawn)
        self.bitten.update(other.bitten)

    def rows(self) -> Iterator[tuple[str, int, int]]:
        """Yield (name, drawn, bitten) of each drawn name in alphabetical order."""
        for name in sorted(self.drawn):
            yield name, self.drawn[name], self.bitten[name]

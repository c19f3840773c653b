"""How often what was drawn has bitten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Of faults by kind, of whom they hit and of the moments that they waited for, by their names."""

    drawn: Counter[str] = field(default_factory=Counter)
    bitten: Counter[str] = field(default_factory=Counter)

    def draw(self, names: Iterable[str]) -> None:
        self.drawn.update(names)

    def bite(self, names: Iterable[str]) -> None:
        self.bitten.update(names)

    def add(self, other: Tally) -> None:
        self.drawn.update(other.drawn)
        self.bitten.update(other.bitten)

    def rows(self) -> Iterator[tuple[str, int, int]]:
        """Each name in its order, with how often it was drawn and has bitten."""
        for name in sorted(self.drawn):
            yield name, self.drawn[name], self.bitten[name]

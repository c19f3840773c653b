"""A defect of a log, as a change of a correct history."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tests.checker.little_log import Case

Spoil: TypeAlias = Callable[[Case, random.Random], Case]


class NothingToSpoil(Exception):
    """Raised if the history has no target for this mutation."""


@dataclass(frozen=True)
class Mutation:
    """A mutation. `on_the_way`: a checker queried after every event finds it before the end."""

    name: str
    breaks: str
    spoil: Spoil
    on_the_way: bool

    def __str__(self) -> str:
        return self.name


def mutation(breaks: str, *, on_the_way: bool = False) -> Callable[[Spoil], Mutation]:
    """Turn a function into a mutation that violates this invariant."""
    return lambda spoil: Mutation(spoil.__name__, breaks, spoil, on_the_way)

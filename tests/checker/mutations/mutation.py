"""A fault of a log, as what it makes of a right history."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tests.checker.little_log import Story

Spoil: TypeAlias = Callable[[Story, random.Random], Story]


class NothingToSpoil(Exception):
    """The history has nothing that this fault could befall."""


@dataclass(frozen=True)
class Mutation:
    """`on_the_way`: whether it is found before the end, too, by who asks after every event."""

    name: str
    breaks: str
    spoil: Spoil
    on_the_way: bool

    def __str__(self) -> str:
        return self.name


def mutation(breaks: str, *, on_the_way: bool = False) -> Callable[[Spoil], Mutation]:
    """Of a function: the mutation that it makes, which breaks this invariant."""
    return lambda spoil: Mutation(spoil.__name__, breaks, spoil, on_the_way)

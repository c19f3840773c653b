"""Long events of the controller in steps, between which the caller lets other tasks run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import TypeVar

from cluster.controller.effects import Pause

#: The number of partitions in a step. A decision with its effects takes up to 50 µs, so that a step takes up to 8 ms.
STEP = 150

T = TypeVar("T")


def in_steps(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in lists of at most STEP. They are copied first, so that a step may change where they are."""
    left = iter(list(items))
    while step := list(islice(left, STEP)):
        yield step


def pause_after(step: Sized) -> Iterator[Pause]:
    """Yield a pause if the step is a whole one, so that an event about few partitions has none."""
    if len(step) == STEP:
        yield Pause()

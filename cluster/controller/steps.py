"""Long events of the controller in steps, between which the caller lets other tasks run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import TypeVar

from cluster.controller.effects import Pause

#: The number of partitions in a step. A decision with its effects takes up to 50 µs. The longest step took 16 ms.
STEP = 150

T = TypeVar("T")


def in_steps(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in lists of at most STEP.

    The items are copied first, so that a step may change the collection that they came from.
    """
    left = iter(list(items))
    while step := list(islice(left, STEP)):
        yield step


def pause_after(step: Sized) -> Iterator[Pause]:
    """Yield a pause if the step is full, so that an event about fewer than STEP partitions has no pause."""
    if len(step) == STEP:
        yield Pause()

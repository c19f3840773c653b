"""Do work for many items on a few threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def run_parallel(count: int, work: Callable[[T], object], items: Iterable[T]) -> None:
    """Call `work` for each item on `count` threads; without a thread if `count` is 1. Raise the error of one thread if
    there are errors.

    Each thread takes the next item when it is done with one, because submitting each item to the pool takes longer than
    closing a log. A thread ends at its first error. Other threads go on with the remaining items.
    """
    remaining = iter(list(items))  # CPython gives each item of a list to one thread only

    def take() -> None:
        for item in remaining:
            work(item)

    if count <= 1:
        take()
        return
    with ThreadPoolExecutor(count) as threads:
        for taken in [threads.submit(take) for _ in range(count)]:
            taken.result()

"""Do work for many items on a few threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def run_parallel(count: int, work: Callable[[T], object], items: Iterable[T]) -> None:
    """Call `work` for each item on `count` threads; without a thread if `count` is 1.

    Each item is tried, also after errors, and the first error is raised at the end. Only a MemoryError, or an exception
    that is no `Exception` such as KeyboardInterrupt, ends the work of its thread at once.

    Each thread takes the next item when it is done with one, because submitting each item to the pool takes longer than
    closing a log.
    """
    remaining = iter(list(items))  # CPython gives each item of a list to one thread only
    errors: list[Exception] = []

    def take() -> None:
        for item in remaining:
            try:
                work(item)
            except MemoryError:
                raise  # the process must end
            except Exception as error:
                errors.append(error)

    if count <= 1:
        take()
    else:
        with ThreadPoolExecutor(count) as threads:
            for taken in [threads.submit(take) for _ in range(count)]:
                taken.result()
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # the raised error refers to this frame, and must not be in a cycle with it

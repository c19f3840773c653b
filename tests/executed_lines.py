"""Counts the lines of Python that a call executes: a measure of its work that no other process changes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: The modules of the event loop. The number of its turns depends on the rounding of times.
_LOOP = ("asyncio", "selectors", "tests.virtual_time")


def executed_lines(call: Callable[[], object]) -> int:
    """Return how many lines of Python were executed while the call ran, each as often as it was executed."""
    with _counting() as count:
        call()
    return count[0]


async def executed_lines_until(end: Awaitable[object]) -> int:
    """Return how many lines of Python were executed until `end`, also by other tasks, but without the event loop's."""
    with _counting(_LOOP) as count:
        await end
    return count[0]


@contextmanager
def _counting(without: tuple[str, ...] = ()) -> Iterator[list[int]]:
    count = [0]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if without and frame.f_globals.get("__name__", "").startswith(without):
            return None
        count[0] += event == "line"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # a collection would run the ends of coroutines that earlier tests have left
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()

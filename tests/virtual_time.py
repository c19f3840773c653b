"""An event loop whose time jumps to the next timer whenever no task can run.

A test may let hours pass, and two runs of a test are equal.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

#: No scenario lasts this long. A test that still waits then waits for something that never happens.
_LONGEST_S = 24 * 3600


class _JumpingSelector(selectors.EpollSelector):
    """A selector that moves the clock to the end of the sleep instead of sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("every task waits, and no timer runs")
        self.now_s += max(timeout, 1e-6)  # a step too small to change the float would stop the time
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


class VirtualClock:
    """The clock of the running VirtualLoop."""

    EPOCH_MS = 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def now_ms(self) -> int:
        return self.EPOCH_MS + self.monotonic_ms()


def on_virtual_time(scenario: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Turn an async scenario into a test in which hours take milliseconds."""

    @functools.wraps(scenario)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(asyncio.wait_for(scenario(*args, **kwargs), _LONGEST_S))

    return test


async def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it never came true"
        await asyncio.sleep(0.001)

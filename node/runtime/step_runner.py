"""Runs work in steps (`storage.steps`) on the event loop, and its long steps on threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from storage.steps import PAUSE, Step, StepOutcome, SteppedWork, call

T = TypeVar("T")

#: Runs a function on a thread.
Offload = Callable[[Callable[[Step], StepOutcome], Step], Awaitable[StepOutcome]]


class StepRunner:
    """Runs the steps of several pieces of work, at most `at_once` steps at the same time.

    Steps wait for their turn in the order of their arrival, so several pieces of work advance in turn. Work that ends
    without a step needs no runner: the caller runs it with `SteppedWork.resume`, and passes other work to `finish`.

    offload   makes the call of a step on a thread
    """

    def __init__(self, offload: Offload, at_once: int) -> None:
        self._offload = offload
        self._slots = asyncio.Semaphore(at_once)

    async def finish(self, work: SteppedWork[T], check: Callable[[], None]) -> T:
        """Run the work to its end, and return its result or raise its error.

        The calls of steps run on threads, and all other code on the event loop; at a PAUSE, other tasks run. `check`
        is called before each step, when its turn has come, and after it. If `check` raises an error, the work goes no
        further, and the error is raised.
        """
        if not work.begun:
            work.resume()
        while not work.finished:
            async with self._slots:
                check()
                outcome = StepOutcome()
                if work.step is PAUSE:
                    await asyncio.sleep(0)  # other requests run
                else:
                    outcome = await self._offload(call, work.step)
            check()
            work.resume(outcome)
        return work.result

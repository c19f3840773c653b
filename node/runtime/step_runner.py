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
    """Runs the steps of several pieces of work: `at_once` of them at the same time, in the order of their arrival.

    Work that needs no step runs at once, by `SteppedWork.resume`. Other work is handed to `finish`.
    """

    def __init__(self, offload: Offload, at_once: int) -> None:
        self._offload = offload
        self._slots = asyncio.Semaphore(at_once)

    async def finish(self, work: SteppedWork[T], check: Callable[[], None]) -> T:
        """Run the work to its end and return its result.

        `check` is called before and after each step. If it raises an error, the work ends with that error.
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

"""Work in steps, so that a broker's event loop serves other requests between two of them.

Such work is a generator. The code between two yields takes a few ms at most. The generator yields in two cases:

A  a call that may take long. The driver makes the call, on another thread if necessary, and sends the outcome back.
B  `PAUSE`: the work has taken a few ms, so the driver lets other requests run before the work continues.

The generator keeps its position and its best answer so far, so that no part of the work is repeated. Its data may
change while it waits. `steps_until_change` then ends the work, and the caller starts it again.

`run_steps` is the driver for callers that may block. The driver for an event loop is `node.runtime.step_runner`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

PAUSE: Final = None
#: A call that may take long, or PAUSE.
Step = Callable[[], object] | None
#: Work in steps that returns a T. A `StepOutcome` is sent to it after each call.
Steps = Generator[Step, Any, T]


class StepOutcome(NamedTuple):
    """The result of a call, or the error that it raised; `error` is None after a success."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """Return the result of the call, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.value


def call(step: Step) -> StepOutcome:
    """Make the call of a step and return its outcome; an error that the call raises is part of the outcome.

    `PAUSE` has an empty outcome. Any thread may call this.
    """
    try:
        return StepOutcome(step() if step is not None else None)
    except Exception as error:  # the work decides what the error means
        return StepOutcome(error=error)


class SteppedWork(Generic[T]):
    """One piece of work, between two of its steps.

    begun      the work has run up to its first step, or to its end
    step       the step at which the work waits
    finished   the work has ended, and `result` is what it returned
    """

    __slots__ = ("_steps", "begun", "finished", "result", "step")

    result: T

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.begun = self.finished = False
        self.step: Step = PAUSE

    def resume(self, outcome: StepOutcome | None = None) -> None:
        """Run the work up to its next step or its end, with the outcome of the last step (None for the first run).

        Errors of the work are raised here.
        """
        self.begun = True
        try:
            self.step = self._steps.send(outcome)
        except StopIteration as end:
            self.finished, self.result = True, end.value


def run_steps(steps: Steps[T]) -> T:
    """Run work to its end on the caller's thread without pauses, and return its result or raise its error."""
    work = SteppedWork(steps)
    work.resume()
    while not work.finished:
        work.resume(call(work.step))
    return work.result


def steps_until_change(steps: Steps[T], version: Callable[[], object]) -> Steps[SteppedWork[T]]:
    """Yield the steps of other work. End that work early if `version()` differs after a step; its errors are raised.

    Return the other work, which is `finished` unless it was ended early.
    """
    work = SteppedWork(steps)
    work.resume()
    begun_with = None if work.finished else version()
    while not work.finished:
        outcome = yield work.step
        if version() != begun_with:
            break
        work.resume(outcome)
    return work

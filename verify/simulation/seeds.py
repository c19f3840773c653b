"""Simulations by the hundred: each from a seed, some at once, in processes that serve many."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager

from verify.simulation.run import Outcome, Run
from verify.simulation.scenario import Story
from verify.simulation.timeline import Process


def tell(story: Story, show: Callable[[str], object] | None = None) -> Outcome:
    """One simulation, in this process."""
    with _uninterrupted():
        return _tell(story, show)


def _tell(story: Story, show: Callable[[str], object] | None) -> Outcome:
    """The garbage collector rests: when it came would be another chance."""
    collects = gc.isenabled()
    gc.disable()
    gc.freeze()  # what was there before is not gone through afterwards
    run = Run(story, show)
    tracebacks = _Tracebacks(run.trace.add)
    logging.getLogger().addHandler(tracebacks)
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        outcome = run.tell()
    finally:
        logging.getLogger().removeHandler(tracebacks)
        logging.disable(logging.CRITICAL)
        # After all that counts, since its processes now come to ends that they never had, and may complain.
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        run.cluster.vanish()
        del run, tracebacks
        gc.collect()
        gc.unfreeze()
        sys.unraisablehook = hook
        logging.disable(disabled)
        if collects:
            gc.enable()
    return outcome


def tell_all(stories: Iterable[Story], jobs: int) -> Iterator[Outcome]:
    """In the order in which they are done."""
    told = list(stories)
    if jobs <= 1:
        yield from map(tell, told)
        return
    with ProcessPoolExecutor(jobs) as pool:
        try:
            for done in as_completed([pool.submit(tell, story) for story in told]):
                yield done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C counts when the story is told: in the midst of it some simulated process would take it for its own
    failure. A second one does not wait.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def note(number: int, frame: object) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


class _Tracebacks(logging.Handler):
    """Takes what a process logs with a stack for a failure of it."""

    def __init__(self, tell: Callable[..., object]) -> None:
        super().__init__(logging.ERROR)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()
        if record.exc_info and (not isinstance(loop, Process) or loop.alive):
            who = loop.name if isinstance(loop, Process) else "a thread"
            self._tell("failure", who, record.getMessage(), repr(record.exc_info[1]))

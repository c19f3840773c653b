"""Simulate many seeds, several at once, in processes that simulate one scenario after another."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager

from verify.simulation.run import Outcome, Run
from verify.simulation.scenario import Scenario
from verify.simulation.timeline import Process


def simulate(scenario: Scenario, show: Callable[[str], object] | None = None) -> Outcome:
    """Simulate one scenario in this process and free its resources; `show` receives each line of the trace.

    An ERROR log record with a traceback counts as a failure. Ctrl-C takes effect when the scenario has ended.
    """
    with _uninterrupted():
        return _simulate(scenario, show)


def _simulate(scenario: Scenario, show: Callable[[str], object] | None) -> Outcome:
    """Simulate with the garbage collector disabled, because the times of collections would vary between runs."""
    collects = gc.isenabled()
    gc.disable()
    gc.freeze()  # exclude existing objects from later collections
    run = Run(scenario, show)
    tracebacks = _Tracebacks(run.trace.add)
    logging.getLogger().addHandler(tracebacks)
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        outcome = run.execute()
    finally:
        logging.getLogger().removeHandler(tracebacks)
        logging.disable(logging.CRITICAL)
        # Disposing comes last, because coroutines of killed processes are closed here and may log errors.
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


def simulate_all(scenarios: Iterable[Scenario], jobs: int) -> Generator[Outcome, None, None]:
    """Yield the outcomes of the scenarios in order of completion, with up to `jobs` processes.

    With one job the scenarios are simulated in this process, in order. Closing the generator drops the scenarios that
    have not begun, and returns when the others and their processes have ended.
    """
    pending = list(scenarios)
    if jobs <= 1:
        yield from map(simulate, pending)
        return
    pool = ProcessPoolExecutor(jobs)
    try:
        for done in as_completed([pool.submit(simulate, scenario) for scenario in pending]):
            yield done.result()
    finally:
        # The pool's thread must have ended before the interpreter exits, because the exit handler of
        # concurrent.futures writes to a pipe that the thread closes.
        pool.shutdown(cancel_futures=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C to the end of a scenario, because a simulated process would treat it as its own failure.

    KeyboardInterrupt is raised after the scenario. A second Ctrl-C takes effect at once. Outside of the main thread
    nothing is changed.
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
    """A log handler that treats each ERROR record with a traceback as a failure of the logging process, if that is
    alive.
    """

    def __init__(self, report: Callable[..., object]) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()
        if record.exc_info and (not isinstance(loop, Process) or loop.alive):
            source = loop.name if isinstance(loop, Process) else "a thread"
            self._report("failure", source, record.getMessage(), repr(record.exc_info[1]))

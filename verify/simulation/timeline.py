"""Implement virtual time: one queue of events for all processes, and the event loop of each process.

No code runs between two events, so the clock jumps from one event to the next. A process is an event loop of its own. A
process runs in turns: callbacks that become ready during a turn run in the next turn. Each turn takes virtual time, so
that no process is infinitely fast. A process can be held (like SIGSTOP: time goes on, and none of its code runs). A
process can be killed (like SIGKILL: none of its code runs any more, not even a `finally` block or a timer).
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
#: The virtual time of a turn of a loop, and of each callback in it.
_TURN_NS = 10_000
_CALLBACK_NS = 5_000
#: The range of the virtual time of work on a thread.
_THREAD_NS = (20_000, 500_000)
#: How often a coroutine may await once more while it is closed.
_MOST_FINALLY = 100


class Timer(asyncio.TimerHandle):
    """A scheduled callback."""

    __slots__ = ()

    def __init__(self, when_s: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        # The base class's __init__ is not called, because it collects debugging information.
        self._when = when_s
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()

    def __repr__(self) -> str:
        return f"<Timer of {self._callback}>"


class Timeline:
    """The queue of events and the clock. `now_ns` begins at 0.

    until_ns   the end of the current `run`
    turns      the number of turns of all processes
    events     a heap of the future events: (time in ns, number, process, timer or None for a turn)
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.until_ns = 0
        self.turns = 0
        self._running: Process | None = None
        self.events: list[tuple[int, int, Process, Timer | None]] = []
        self._numbers = itertools.count()
        self._processes: list[Process] = []

    def enter(self, process: Process | None) -> None:
        """Make `process` the running loop. The call to asyncio is a system call, so it is made only on a change."""
        if process is not self._running:
            self._running = process
            asyncio._set_running_loop(process)

    def began(self, process: Process) -> None:
        self._processes.append(process)

    def end(self) -> None:
        """Kill all processes and free their resources."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.release()
        self.enter(None)
        self.events.clear()
        self._processes.clear()

    def at(self, when_ns: int, process: Process, timer: Timer | None) -> None:
        """Schedule a timer of a process, or (None) its next turn."""
        heappush(self.events, (when_ns, next(self._numbers), process, timer))

    def run(self, until_ns: int) -> None:
        """Run all events until that time, inclusive. The clock then shows that time."""
        events = self.events
        self.until_ns = until_ns
        try:
            while events and events[0][0] <= until_ns:
                when_ns, _, process, timer = heappop(events)
                if timer is None or not timer._cancelled:
                    self.now_ns = when_ns
                    process.due(timer)
        finally:
            self.enter(None)
        self.now_ns = max(self.now_ns, until_ns)

    def run_while(self, waiting: Callable[[], bool], until_ns: int) -> bool:
        """Run until `waiting` returns False or the time is reached. Return whether it returned False.

        `waiting` is called before the events of each time. The clock stays at the last event.
        """
        events = self.events
        while waiting():
            if not events or events[0][0] > until_ns:
                return False
            self.run(events[0][0])
        return True


class Process(asyncio.BaseEventLoop):
    """The event loop of one process.

    alive        False once the process was killed
    on_failure   called with a text for each uncaught exception of a live process
    rng          chooses how long threads take
    """

    def __init__(self, timeline: Timeline, name: str, rng: Any, on_failure: Callable[[str], object]) -> None:
        self.name = name
        self.alive = True
        self._timeline = timeline
        self._rng = rng
        self._on_failure = on_failure
        self._held = False
        self._ready: deque[Timer] = deque()
        self._busy_until_ns = 0
        self._spent_ns = 0
        self._turning = False
        self._turn_is_due = False
        self._main: Coroutine[Any, Any, None] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        timeline.began(self)

    # --- from outside ------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the process with this main function, in the next turn. The end of `work` does not end the process."""
        self._main = work
        self.call_soon(lambda: self.create_task(work))

    def hold(self) -> None:
        """Stop executing the process, like SIGSTOP. Its events are kept until `resume`."""
        self._held = True

    def resume(self) -> None:
        """Execute the process again, like SIGCONT; events that came meanwhile are handled at once."""
        self._held = False
        self._schedule()

    @property
    def held(self) -> bool:
        return self._held

    def kill(self) -> None:
        """Stop the process for good, like SIGKILL. The process keeps its tasks until `release`, so that they cannot
        clean up.
        """
        if self.alive:
            self.alive = False
            self._tasks = list(asyncio.all_tasks(self))
            self._ready.clear()

    def release(self) -> None:
        """Free the resources of the process after the simulation, when the `finally` blocks of its coroutines have no
        effect any more.
        """
        self._timeline.enter(self)
        _unwind(self._main)
        while self._tasks:
            _unwind(self._tasks.pop().get_coro())

    def spend(self, ns: int) -> None:
        """Make the current work take longer: the turn of the loop, or the work on a thread."""
        self._spent_ns += ns

    def deliver(self, when_ns: int, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback` in this process at that time, on behalf of another process, if this process is alive then."""
        self._timeline.at(when_ns, self, Timer(0.0, callback, args))

    def due(self, timer: Timer | None) -> None:
        """Handle an event of this process: take a turn now, or keep the event while the process is held or busy."""
        if not self.alive:
            return
        if timer is None:
            self._turn_is_due = False
        else:
            self._ready.append(timer)
        if self._held or self._turn_is_due:
            return
        if self._busy_until_ns > self._timeline.now_ns:
            self._schedule()
        else:
            self._take_turns()

    def _schedule(self) -> None:
        if self._ready and not self._turn_is_due and not self._held and self.alive:
            self._turn_is_due = True
            self._timeline.at(max(self._timeline.now_ns, self._busy_until_ns), self, None)

    def _take_turns(self) -> None:
        """Run one turn, and further turns as long as no other event comes first."""
        ready, timeline, events = self._ready, self._timeline, self._timeline.events
        timeline.enter(self)
        while True:
            count = len(ready)
            timeline.turns += 1
            self._turning = True
            for _ in range(count):
                timer = ready.popleft()
                callback = timer._callback
                if callback is not None:
                    try:
                        callback(*timer._args)
                    except Exception as error:
                        self.call_exception_handler({"message": "a callback failed", "exception": error})
                    except BaseException:
                        if self.alive:  # otherwise the callback killed its own process
                            raise
                    if not self.alive:
                        return
            self._turning = False
            self._busy_until_ns = busy_until_ns = timeline.now_ns + _TURN_NS + count * _CALLBACK_NS + self._spent_ns
            self._spent_ns = 0
            if not ready or self._held or self._turn_is_due:
                return
            if busy_until_ns > timeline.until_ns or (events and events[0][0] <= busy_until_ns):
                self._schedule()
                return
            timeline.now_ns = busy_until_ns

    # --- the interface of asyncio ------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._timeline.now_ns / NS_PER_S

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer:
        timer = Timer(0.0, callback, args)
        if self.alive:
            self._ready.append(timer)
            if not self._turning:
                self._schedule()
        return timer

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer:
        return self.call_soon(callback, *args)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer:
        when_ns = self._timeline.now_ns + max(0, round(delay * NS_PER_S))
        timer = Timer(when_ns / NS_PER_S, callback, args)
        if self.alive:
            self._timeline.at(when_ns, self, timer)
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer:
        timer = Timer(when, callback, args)
        if self.alive:
            self._timeline.at(max(self._timeline.now_ns, round(when * NS_PER_S)), self, timer)
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        # A name is always given, because asyncio's own counter is shared by all simulations of this interpreter.
        task = asyncio.Task(coro, loop=self, name=str(name or "task"))
        if not self.alive:
            self._tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run `func` as on a thread: later by some virtual time, without interruption, and without a running loop."""
        future: asyncio.Future[T] = self.create_future()
        begin_ns = self._timeline.now_ns + self._thread_ns()
        self.deliver(begin_ns, self._on_thread, future, func, args)
        return future

    def _thread_ns(self) -> int:
        least, most = _THREAD_NS
        return least + int(self._rng.random() * (most - least))  # takes a quarter of the time of `randrange`

    def _on_thread(self, future: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
        self._timeline.enter(None)  # a thread has no running loop
        spent_before_ns, self._spent_ns = self._spent_ns, 0
        try:
            found = func(*args)
        except Exception as error:
            failed, error = error, error
            outcome: Callable[[], object] = lambda: future.set_exception(failed)  # noqa: E731
        except BaseException:
            if self.alive:
                raise
            return
        else:
            outcome = lambda: future.set_result(found)  # noqa: E731
        finally:
            self._timeline.enter(self)
        end_ns = self._timeline.now_ns + self._thread_ns() + self._spent_ns
        self._spent_ns = spent_before_ns
        self.deliver(end_ns, lambda: None if future.done() else outcome())

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.alive:
            self._on_failure(f"{context.get('message')}: {context.get('exception')!r}")
            log.error("%s: %s", self.name, context.get("message"), exc_info=context.get("exception"))

    get_debug = staticmethod(bool)  # False; each future calls it, and `bool` needs no call in Python

    def is_running(self) -> bool:
        return self.alive

    def is_closed(self) -> bool:
        return not self.alive


def _unwind(work: Any) -> None:
    """Close a coroutine that will never be resumed, including one that awaits in its `finally` block."""
    for _ in range(_MOST_FINALLY):
        if work is None or work.cr_frame is None:
            return
        with suppress(BaseException):
            work.close()

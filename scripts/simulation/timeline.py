"""Virtual time: one row of events for all processes, and the event loop that each of them lives on.

Nothing happens between two events, so the clock jumps from one to the next. A process is an event loop of its own. It
takes turns: what became ready meanwhile runs in its next turn, and a turn takes time, so that nobody is infinitely
fast. It can be held (SIGSTOP: time goes on, nothing of it runs) and killed (SIGKILL: nothing of it ever runs again, no
`finally` and no timer).
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
#: What a turn of a loop takes, and what each callback of it adds.
_TURN_NS = 10_000
_CALLBACK_NS = 5_000
#: What is done on a thread takes from so long to so long, at least.
_THREAD_NS = (20_000, 500_000)


class Timer(asyncio.TimerHandle):
    """Something to be called; by whom, `process` says."""

    __slots__ = ("process",)

    def __init__(self, process: Process, when_s: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        # Not the base's: it looks for what debugging needs.
        self.process = process
        self._when = when_s
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()

    def __repr__(self) -> str:
        return f"<Timer of {self.process.name}>"


class Timeline:
    """`now_ns` begins at 0."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.turns = 0
        self._running: Process | None = None
        self._events: list[tuple[int, int, Timer]] = []
        self._numbers = itertools.count()

    def enter(self, process: Process | None) -> None:
        """The loop that runs from now on. Told only where it is another: each telling is a call of the system."""
        if process is not self._running:
            self._running = process
            asyncio._set_running_loop(process)

    def at(self, when_ns: int, timer: Timer) -> None:
        heapq.heappush(self._events, (when_ns, next(self._numbers), timer))

    def run(self, until_ns: int) -> None:
        """All that happens until then."""
        events, pop = self._events, heapq.heappop
        try:
            while events and events[0][0] <= until_ns:
                when_ns, _, timer = pop(events)
                if timer._cancelled:
                    continue
                self.now_ns = when_ns
                timer.process.due(timer)
        finally:
            self.enter(None)
        self.now_ns = max(self.now_ns, until_ns)

    def run_while(self, waiting: Callable[[], bool], until_ns: int) -> bool:
        """Until nobody waits any more, or that time; whether it came true."""
        events = self._events
        while waiting():
            if not events or events[0][0] > until_ns:
                return False
            self.run(events[0][0])
        return True


class Process(asyncio.BaseEventLoop):
    """The event loop of one process.

    on_failure   told what nobody has caught
    dice         how long threads take
    """

    def __init__(self, timeline: Timeline, name: str, dice: Any, on_failure: Callable[[str], object]) -> None:
        self.name = name
        self.alive = True
        self._timeline = timeline
        self._dice = dice
        self._on_failure = on_failure
        self._held = False
        self._ready: deque[Timer] = deque()
        self._busy_until_ns = 0
        self._spent_ns = 0
        self._turning = False
        self._next_turn: Timer | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    # --- from outside ------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begins as a process whose main function this is."""
        self.call_soon(lambda: self.create_task(work))

    def hold(self) -> None:
        self._held = True

    def go_on(self) -> None:
        self._held = False
        self._schedule()

    @property
    def held(self) -> bool:
        return self._held

    def kill(self) -> None:
        """What it was about to do never happens. Its tasks are kept, lest they are collected and clean up behind it."""
        self.alive = False
        self._tasks = list(asyncio.all_tasks(self))
        self._ready.clear()

    def spend(self, ns: int) -> None:
        """What it does just now takes so much longer: a turn of the loop, or work on a thread."""
        self._spent_ns += ns

    def deliver(self, when_ns: int, callback: Callable[..., object], *args: Any) -> None:
        """Something comes from outside at that time."""
        self._timeline.at(when_ns, Timer(self, 0.0, callback, args))

    def due(self, timer: Timer) -> None:
        """The timeline has come to it."""
        if not self.alive:
            return
        if timer is self._next_turn:
            self._next_turn = None
            if not self._held:
                self._turn()
            return
        self._ready.append(timer)
        if self._next_turn is None and not self._held:
            if self._busy_until_ns <= self._timeline.now_ns:
                self._turn()
            else:
                self._schedule()

    def _schedule(self) -> None:
        if self._ready and self._next_turn is None and not self._held and self.alive:
            self._next_turn = Timer(self, 0.0, _nothing, ())
            self._timeline.at(max(self._timeline.now_ns, self._busy_until_ns), self._next_turn)

    def _turn(self) -> None:
        ready, timeline = self._ready, self._timeline
        count = len(ready)
        timeline.turns += 1
        timeline.enter(self)
        self._turning = True
        for _ in range(count):
            timer = ready.popleft()
            callback = timer._callback
            if callback is not None:
                try:
                    callback(*timer._args)
                except Exception as error:
                    self.call_exception_handler({"message": "a callback failed", "exception": error})
                if not self.alive:
                    return
        self._turning = False
        spent_ns, self._spent_ns = self._spent_ns, 0
        self._busy_until_ns = timeline.now_ns + _TURN_NS + count * _CALLBACK_NS + spent_ns
        self._schedule()

    # --- what asyncio asks of a loop ---------------------------------------------------------------------------

    def time(self) -> float:
        return self._timeline.now_ns / NS_PER_S

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer:
        timer = Timer(self, 0.0, callback, args)
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
        timer = Timer(self, when_ns / NS_PER_S, callback, args)
        if self.alive:
            self._timeline.at(when_ns, timer)
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer:
        timer = Timer(self, when, callback, args)
        if self.alive:
            self._timeline.at(max(self._timeline.now_ns, round(when * NS_PER_S)), timer)
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
        # A name always, since otherwise one counter would number the tasks of all simulations of this interpreter.
        return asyncio.Task(coro, loop=self, name=str(name or "task"))

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """On a thread: somewhat later, in one piece."""
        future: asyncio.Future[T] = self.create_future()
        begin_ns = self._timeline.now_ns + self._dice.randrange(*_THREAD_NS)
        self.deliver(begin_ns, self._on_thread, future, func, args)
        return future

    def _on_thread(self, future: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
        self._timeline.enter(None)  # a thread has none
        spent_before_ns, self._spent_ns = self._spent_ns, 0
        try:
            found = func(*args)
        except Exception as error:
            failed, error = error, error
            outcome: Callable[[], object] = lambda: future.set_exception(failed)  # noqa: E731
        else:
            outcome = lambda: future.set_result(found)  # noqa: E731
        finally:
            self._timeline.enter(self)
        end_ns = self._timeline.now_ns + self._dice.randrange(*_THREAD_NS) + self._spent_ns
        self._spent_ns = spent_before_ns
        self.deliver(end_ns, lambda: None if future.done() else outcome())

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.alive:
            self._on_failure(f"{context.get('message')}: {context.get('exception')!r}")
            log.error("%s: %s", self.name, context.get("message"), exc_info=context.get("exception"))

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.alive

    def is_closed(self) -> bool:
        return not self.alive


def _nothing() -> None: ...

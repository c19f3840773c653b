"""Define the base class of all faults: the steps that heal it, and their order."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from signal import SIGKILL, Signals
from typing import Any

from tidelog.errors import LocalError, TidelogError
from tidelog.local.processes.process import Process
from tidelog.model import TopicPartition
from verify.chaos.fault import Availability, Evidence, Need, Target, View

#: The time in which a process must end after SIGKILL. A process that writes a core or frees gigabytes needs long.
_END_MS = 20_000
_LOOK_EVERY_S = 0.05
_CANCEL_AGAIN_S = 1.0

HealStep = Callable[[], Awaitable[object]]

#: The availability of a fault that leaves too few replicas for acks=all as long as it lasts.
UNAVAILABLE = Availability(None, leaves_majority=False)


@dataclass(frozen=True, slots=True)
class Timing:
    """Settings of the brokers under test on which durations depend, and times derived from them, in milliseconds. The
    defaults are those of a run's own cluster.
    """

    session_timeout_ms: int = 4_000
    replica_lag_time_max_ms: int = 4_000

    @property
    def expired_ms(self) -> int:
        """Return the time after which a silent broker's session has ended. ZooKeeper checks sessions once per tick,
        which is at most an eighth of the timeout.
        """
        return self.session_timeout_ms + 500

    @property
    def shrunk_ms(self) -> int:
        """Return the time after which a replica that stopped fetching has left the ISR. Leaders check at intervals of
        half of the permitted lag.
        """
        return 3 * self.replica_lag_time_max_ms // 2

    # --- the unavailability that a fault may cause ----------------------------------------------------------------

    @property
    def refused_ms(self) -> int:
        """Return the limit for a killed broker. Refused connections reveal its death before its session ends.

        At most a sixth of the session has passed since its last heartbeat. The goal is half a second, but a broker that
        was already fenced within one session timeout is fenced again only after the rest of it.
        """
        return 3 * self.session_timeout_ms // 4

    @property
    def silent_ms(self) -> int:
        """Return the limit for a leader that becomes silent. Its session ends, a new leader is elected, and clients
        wait for answers of the old one until they refresh their metadata.
        """
        return self.session_timeout_ms + 3_000

    @property
    def lagging_ms(self) -> int:
        """Return the limit for a follower that stops fetching: acks=all waits until the follower has left the ISR."""
        return self.shrunk_ms + 1_000

    @property
    def reconnected_ms(self) -> int:
        """Return the additional time after a cut.

        TCP sends a lost packet again after pauses that double from 0.2 s on, and retries a connect after 1, 3 and 7 s.
        So clients may be cut off somewhat longer than the cut lasts.
        """
        return 4_000

    @property
    def moved_ms(self) -> int:
        """Return the additional time, besides the duration of the fault, while an administrator moves leaders.

        Each new leader waits for a missing follower again. A broker that is cut off from the controller learns only
        after the cut that it is the leader.
        """
        return self.shrunk_ms

    @property
    def undisturbed_ms(self) -> int:
        """Return the limit for faults that block no client: the cost of two busy cores, and less than any timeout."""
        return 2_000


class FaultBase(ABC):
    """The base class of faults (`verify.chaos.fault.Fault`). Subclasses define the injection and how to detect its
    effect.

    `inject` registers the step that undoes a change with `on_heal` before it makes the change, so that it can be
    cancelled anywhere.
    """

    row: str
    name: str
    needs: frozenset[Need] = frozenset({Need.PROCESSES, Need.RESTARTS})

    @property
    def lasts_ms(self) -> tuple[int, int]:
        """Return the least and the greatest duration in milliseconds. Durations are no longer than the cluster needs to
        notice the fault, because a run injects all faults.
        """
        return 1_000, 2_000

    @property
    @abstractmethod
    def availability(self) -> Availability: ...

    def __init__(self, timing: Timing | None = None) -> None:
        self.timing = timing or Timing()
        self._heal_steps: list[HealStep] = []
        self._works: list[asyncio.Task[None]] = []
        self._healing = asyncio.Lock()

    @abstractmethod
    async def inject(self, target: Target, rng: random.Random) -> str: ...

    @abstractmethod
    def bit(self, evidence: Evidence) -> str | None: ...

    def broken(self, evidence: Evidence) -> str | None:
        return None

    def on_heal(self, on_heal: HealStep) -> None:
        """Register a step for the next `heal`. The last one registered runs first."""
        self._heal_steps.append(on_heal)

    def meanwhile(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task now. `heal` cancels this task as one of its steps, and waits for its end.

        If no step fails, `heal` raises the task's own error, if any.
        """
        task = asyncio.create_task(work)
        self._works.append(task)

        async def end() -> None:
            while not task.done():  # a cancellation may be lost if a wait ends at the same time
                task.cancel()
                await asyncio.wait([task], timeout=_CANCEL_AGAIN_S)

        self.on_heal(end)

    async def heal(self) -> None:
        """Run all registered steps, the last one first, and forget those that succeed.

        A step that fails does not prevent the others, and the next call repeats it. Raise the first error at the end.
        Without steps the call does nothing.
        """
        async with self._healing:
            failed: list[HealStep] = []
            errors: list[BaseException] = []
            while self._heal_steps:
                try:
                    await self._heal_steps[-1]()
                except Exception as error:
                    errors.append(error)
                    failed.append(self._heal_steps[-1])
                self._heal_steps.pop()
            self._heal_steps = failed[::-1]
            works, self._works = self._works, []
            errors += [failure for work in works if not work.cancelled() and (failure := work.exception())]
            if errors:
                raise errors[0]


def of(tp: TopicPartition) -> str:
    """Return the partition as text in the form of commands: t/0."""
    return f"{tp.topic}/{tp.partition}"


def zookeeper_hosts(target: Target) -> str:
    """Return the address of ZooKeeper. Raise LocalError if the run cannot connect to it."""
    if target.zookeeper_hosts is None:
        raise LocalError("the run cannot connect to ZooKeeper")
    return target.zookeeper_hosts


def leaders(view: View) -> dict[TopicPartition, int]:
    """Return the leader of each partition that has one, in order of partitions."""
    return {tp: state.leader for tp, state in sorted(view.partitions.items()) if state.leader >= 0}


async def look_until(target: Target, what: str, seen: Callable[[View], bool], timeout_s: float) -> View:
    """Return the first view of the cluster that satisfies `seen`. Raise LocalError after the time limit, naming `what`.

    Queries that fail are repeated.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        with suppress(TidelogError):
            if seen(view := await target.view()):
                return view
        if asyncio.get_running_loop().time() >= deadline:
            raise LocalError(f"timed out after {timeout_s:g} s waiting for {what}")
        await asyncio.sleep(_LOOK_EVERY_S)


async def wait_until(what: str, seen: Callable[[], object], timeout_s: float) -> None:
    """Call `seen` every 50 ms until it returns a true value. Raise LocalError after the time limit, naming `what`."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not seen():
        if asyncio.get_running_loop().time() >= deadline:
            raise LocalError(f"timed out after {timeout_s:g} s waiting for {what}")
        await asyncio.sleep(_LOOK_EVERY_S)


def send(process: Process, number: Signals, name: str) -> None:
    """Send a signal to the process. Raise LocalError, naming `name`, if the process has ended already."""
    if not process.signal(number):
        raise LocalError(f"{name} is not running")


async def ended(process: Process, timeout_ms: int = _END_MS) -> bool:
    """Wait for the end of the process, by default up to 20 s. Return whether it ended in time."""
    return await asyncio.to_thread(process.wait, timeout_ms)


async def kill(process: Process, name: str) -> None:
    """Send SIGKILL and wait for the end. Raise LocalError if the process had ended before, or does not
    end within 20 s.
    """
    send(process, SIGKILL, name)
    if not await ended(process):
        raise LocalError(f"{name} did not end within {_END_MS / 1000:g} s of SIGKILL")

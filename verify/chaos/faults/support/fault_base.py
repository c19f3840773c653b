"""What all faults have in common: what they mend, and in which order."""

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

#: How long a process may take to end after SIGKILL; one that writes a core or frees gigabytes takes its time.
_END_MS = 20_000
_LOOK_EVERY_S = 0.05
_CANCEL_AGAIN_S = 1.0

Mend = Callable[[], Awaitable[object]]

#: Too few are left for acks=all, for as long as it lasts.
UNAVAILABLE = Availability(None, leaves_majority=False)


@dataclass(frozen=True, slots=True)
class Timing:
    """What durations are measured by: settings of the brokers under test; here those of a run's own cluster."""

    session_timeout_ms: int = 4_000
    replica_lag_time_max_ms: int = 4_000

    @property
    def expired_ms(self) -> int:
        """By then the session of one who is silent has ended: ZooKeeper looks once a tick, an eighth of it at most."""
        return self.session_timeout_ms + 500

    @property
    def shrunk_ms(self) -> int:
        """By then who fetches no more has left the ISR: leaders look at half of what a replica may lag behind."""
        return 3 * self.replica_lag_time_max_ms // 2

    # --- what a fault may cost at most -------------------------------------------------------------------------

    @property
    def refused_ms(self) -> int:
        """Of one that was killed: connecting to it is refused, which tells earlier than its session could end, of which
        a sixth at most has passed since it was last heard.

        Half a second is aimed at; who was fenced in the same session timeout before has to wait for the rest of it.
        """
        return 3 * self.session_timeout_ms // 4

    @property
    def silent_ms(self) -> int:
        """Of a leader from which nothing is heard any more: its session ends, and clients wait for its answers until
        a heartbeat is missed. Then as above.
        """
        return self.session_timeout_ms + 3_000

    @property
    def lagging_ms(self) -> int:
        """Of a follower that fetches no more: acks=all waits until it has left the ISR."""
        return self.shrunk_ms + 1_000

    @property
    def reconnected_ms(self) -> int:
        """After a cut. A connection that is dead is given up by a heartbeat, and TCP asks for a new one after 1, 3 and
        7 s, so that a cut may last for some time longer than it lasts.
        """
        return 4_000

    @property
    def moved_ms(self) -> int:
        """More than that and the fault's own length, where an administrator moves leaders meanwhile: whoever leads anew
        misses a follower anew, and who is cut off from the controller learns only after the cut that it is to lead.
        """
        return self.shrunk_ms

    @property
    def undisturbed_ms(self) -> int:
        """Where nobody has to wait for anything: what two busy cores may cost, and less than any timeout."""
        return 2_000


class Harm(ABC):
    """A `verify.chaos.fault.Fault`, whose subclasses say what is done and by what it is seen to bite.

    What `inject` is about to change it first hands to `mend`: then it can be stopped anywhere.
    """

    row: str
    name: str
    needs: frozenset[Need] = frozenset({Need.PROCESSES, Need.RESTARTS})

    @property
    def lasts_ms(self) -> tuple[int, int]:
        """No longer than it takes to be noticed: a run has to inject all of them."""
        return 1_000, 2_000

    @property
    @abstractmethod
    def availability(self) -> Availability: ...

    def __init__(self, timing: Timing | None = None) -> None:
        self.timing = timing or Timing()
        self._mends: list[Mend] = []
        self._works: list[asyncio.Task[None]] = []
        self._healing = asyncio.Lock()

    @abstractmethod
    async def inject(self, target: Target, dice: random.Random) -> str: ...

    @abstractmethod
    def bit(self, evidence: Evidence) -> str | None: ...

    def broken(self, evidence: Evidence) -> str | None:
        return None

    def mend(self, mend: Mend) -> None:
        """To be done when the fault is healed, last first."""
        self._mends.append(mend)

    def meanwhile(self, work: Coroutine[Any, Any, None]) -> None:
        """Goes on until the fault is healed; what it fails with is raised by `heal`."""
        task = asyncio.create_task(work)
        self._works.append(task)

        async def end() -> None:
            while not task.done():  # a cancellation may be lost where a wait ends at the same moment
                task.cancel()
                await asyncio.wait([task], timeout=_CANCEL_AGAIN_S)

        self.mend(end)

    async def heal(self) -> None:
        """A mend that fails keeps no other from being done, and is tried again by the next call. Raises the first."""
        async with self._healing:
            failed: list[Mend] = []
            errors: list[BaseException] = []
            while self._mends:
                try:
                    await self._mends[-1]()
                except Exception as error:
                    errors.append(error)
                    failed.append(self._mends[-1])
                self._mends.pop()
            self._mends = failed[::-1]
            works, self._works = self._works, []
            errors += [failure for work in works if not work.cancelled() and (failure := work.exception())]
            if errors:
                raise errors[0]


def of(tp: TopicPartition) -> str:
    """As commands write it: t/0."""
    return f"{tp.topic}/{tp.partition}"


def zookeeper_hosts(target: Target) -> str:
    """Where the run reaches ZooKeeper; LocalError where it does not."""
    if target.zookeeper_hosts is None:
        raise LocalError("ZooKeeper cannot be reached from here")
    return target.zookeeper_hosts


def leaders(view: View) -> dict[TopicPartition, int]:
    """Of the partitions that have one, in their order."""
    return {tp: state.leader for tp, state in sorted(view.partitions.items()) if state.leader >= 0}


async def look_until(target: Target, what: str, seen: Callable[[View], bool], timeout_s: float) -> View:
    """The first view of the cluster that shows it; LocalError says that it did not happen in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        with suppress(TidelogError):
            if seen(view := await target.view()):
                return view
        if asyncio.get_running_loop().time() >= deadline:
            raise LocalError(f"not within {timeout_s:g} s: {what}")
        await asyncio.sleep(_LOOK_EVERY_S)


async def wait_until(what: str, seen: Callable[[], object], timeout_s: float) -> None:
    """Until it is so; LocalError says that it did not happen in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not seen():
        if asyncio.get_running_loop().time() >= deadline:
            raise LocalError(f"not within {timeout_s:g} s: {what}")
        await asyncio.sleep(_LOOK_EVERY_S)


def send(process: Process, number: Signals, whose: str) -> None:
    """LocalError where the process is gone already."""
    if not process.signal(number):
        raise LocalError(f"{whose} does not run")


async def ended(process: Process, timeout_ms: int = _END_MS) -> bool:
    """Waits for it; whether it ended in time."""
    return await asyncio.to_thread(process.wait, timeout_ms)


async def kill(process: Process, whose: str) -> None:
    """SIGKILL, and waits until it is gone; LocalError where it was before."""
    send(process, SIGKILL, whose)
    if not await ended(process):
        raise LocalError(f"{whose} did not end within {_END_MS / 1000:g} s of SIGKILL")

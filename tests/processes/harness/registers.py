"""Groups that commit and are read without rest, and the check that each committed offset was a register (I17)."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.checker.judging import verdict_on
from tests.processes.harness.waiting import Void, wait_bitten, wait_for
from tidelog import TopicPartition
from tidelog.history.events import Event
from tidelog.history.group_operations import CommitInvoked, CommitOk, CommittedOk
from tidelog.history.operations import Client
from verify.chaos.clients.client_context import ClientContext
from verify.chaos.clients.committing import CommittedReader, Committer
from verify.chaos.clients.support.lines import Line

#: The operations that must succeed in some second before a fault; otherwise the fault disturbs nothing.
LEAST_RATE = 200
_PAUSE_S = 0.01
#: The timeout of requests, which is long enough for a paused broker that answers after its pause.
_TIME_LIMIT_MS = 20_000
_S = 1_000_000_000


class _Diary:
    """A history in memory; written by the clients' thread."""

    def __init__(self, header: Client) -> None:
        self.header = header
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        """Stop writing. The history stays readable."""


class Registers:
    """Commits and reads offsets of groups without members, each with one committer, during a `with` block.

    Every other group commits through a Consumer, the others by single requests whose errors are recorded. Offsets are
    read through a Consumer, and by requests to each broker, whether it is the coordinator or not. Every successful
    answer must be correct. The values of a group increase.
    """

    def __init__(
        self, bootstrap_servers: str, addresses: Mapping[int, str], groups: Sequence[str], tps: Sequence[TopicPartition]
    ) -> None:
        self._addresses = dict(addresses)
        self._groups = list(groups)
        self._diaries: list[_Diary] = []
        self._around = ClientContext(bootstrap_servers, (), self._open, timeout_ms=_TIME_LIMIT_MS)
        self._committers = [
            Committer(self._around, group, group, tps, by_request=number % 2 == 0, pause_s=_PAUSE_S)
            for number, group in enumerate(groups)
        ]
        self._reader = CommittedReader(self._around, "reader", groups, tps, pause_s=_PAUSE_S)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="registers", daemon=True)
        self._failure: BaseException | None = None

    def _open(self, header: Client) -> _Diary:
        self._diaries.append(_Diary(header))
        return self._diaries[-1]

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_committed(5)
        wait_bitten(f"{LEAST_RATE} answers a second, so that a fault meets some", self._is_busy, 60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._around.stopping.set)
        self._thread.join(_TIME_LIMIT_MS / 1000 + 10)
        if error is None and self._failure is not None:
            raise self._failure

    # --- looking -------------------------------------------------------------------------------------

    def _reported(self) -> list[Event]:
        return [event for diary in self._diaries for event in list(diary.events)]

    def _ok_s(self) -> list[tuple[str, float, float]]:
        """(group, asked, answered) of each commit that was accepted."""
        return [(each.group, each.t0 / _S, each.t1 / _S) for each in self._reported() if isinstance(each, CommitOk)]

    @property
    def tally(self) -> Counter[tuple[str, str]]:
        """Return how often each operation had each outcome: ("CommitOk", "ok"), ("CommittedFailed", …)."""
        shown = (event for event in self._reported() if not isinstance(event, CommitInvoked))
        return Counter((type(event).__name__, str(getattr(event, "error", "ok"))) for event in shown)

    @property
    def answered(self) -> int:
        """Return the number of commits and fetches that succeeded so far."""
        return sum(isinstance(event, (CommitOk, CommittedOk)) for event in self._reported())

    def _is_busy(self) -> bool:
        since = (time.monotonic() - 1) * _S
        shown = (event for event in self._reported() if isinstance(event, (CommitOk, CommittedOk)))
        return self._failure is not None or sum(event.t1 >= since for event in shown) >= LEAST_RATE

    def wait_committed(self, more: int, groups: Sequence[str] | None = None, timeout_s: float = 60) -> None:
        """Returns when so many more commits of each of these groups were accepted from now on."""
        had = Counter(group for group, _, _ in self._ok_s())

        def reached() -> bool:
            has = Counter(group for group, _, _ in self._ok_s())
            return self._failure is not None or all(has[group] >= had[group] + more for group in groups or self._groups)

        wait_for(f"{more} more commits of each group", reached, timeout_s)
        if self._failure is not None:
            raise self._failure

    def wait_read(self, timeout_s: float = 60) -> None:
        """Returns when each group's offsets were read that is asked for from now on."""
        since = time.monotonic_ns()

        def read() -> bool:
            recent = {each.group for each in self._reported() if isinstance(each, CommittedOk) and each.t0 >= since}
            return self._failure is not None or recent >= set(self._groups)

        wait_for("every group to be read", read, timeout_s)

    def longest_gap_s(self, group: str, since: float) -> float:
        """The longest time without an accepted commit of the group that began or lasted after `since` (monotonic)."""
        times = sorted({done for its, _, done in self._ok_s() if its == group and done >= since})
        return max((after - before for before, after in itertools.pairwise([since, *times])), default=math.inf)

    def ask_in_its_sleep(self, broker_id: int) -> int:
        """Fetches of each group that this broker finds first when it wakes up, which must be within 3 s; how many."""
        for group in self._groups:
            asyncio.run_coroutine_threadsafe(self._ask_sleeper(self._addresses[broker_id], group), self._loop)
        return len(self._groups)

    def check(self) -> None:
        """The verdict, with what it is about."""
        for (what, outcome), count in sorted(self.tally.items()):
            print(f"{what}: {outcome} {count}")
        verdict = verdict_on(self._reported(), "I17")
        print("\n".join(verdict.lines()))
        if not any(isinstance(each, CommittedOk) and each.offset >= 0 for each in self._reported()):
            raise Void("void: nothing committed was ever read")
        assert not verdict.violated, "\n".join(verdict.lines())

    # --- the work ------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._work())
        except BaseException as error:
            self._failure = error
        finally:
            self._loop.close()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for client in (*self._committers, self._reader):
                tasks.create_task(client.run())

    async def _ask_sleeper(self, address: str, group: str) -> None:
        line = Line(address)
        try:
            await self._reader.ask_once(line, group)
        finally:
            line.close()

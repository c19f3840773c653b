"""Groups that commit and are read without rest, and the check that each committed offset was a register (I17)."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tests.processes.harness.offset_manager import Lines
from tests.processes.harness.waiting import Void, wait_bitten, wait_for
from tidelog import OffsetAndMetadata, TopicPartition
from tidelog.aio import Consumer
from tidelog.checker.committed_offsets import Commit, Fetched, register_violations
from tidelog.checker.outcomes import Outcome, commit_outcome, error_name
from tidelog.errors import BrokerError, CoordinatorNotAvailableError, NotCoordinatorError, TidelogError, error_for
from tidelog.group_messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tidelog.messages import DescribePartition

#: What must have an answer in some second before a fault, or the fault finds nothing to spoil.
LEAST_RATE = 200
_PAUSE_S = 0.01
_PATIENCE_MS = 2_000
#: For a broker that is asked in its sleep, to answer when it wakes up.
_LONG_PATIENCE_MS = 20_000
_ELSEWHERE = (NotCoordinatorError, CoordinatorNotAvailableError)


def _outcome_of(error_code: int) -> Outcome:
    """What a coordinator's answer says of the commit."""
    return commit_outcome([error_name(error_code)]) if error_code else Outcome.OK


class Registers:
    """Groups that nobody is a member of, each with a committer of its own, from `with` to its end.

    Every other group commits through a Consumer, the others with single requests, whose refusals count as what they
    are. Readers ask through a Consumer, and each broker, whether it coordinates the group or not: whoever answers must
    answer right. All values of a group rise.
    """

    def __init__(
        self, bootstrap_servers: str, addresses: Mapping[int, str], groups: Sequence[str], tps: Sequence[TopicPartition]
    ) -> None:
        self._servers = bootstrap_servers
        self._addresses = dict(addresses)
        self._groups = list(groups)
        self._tps = list(tps)
        self._commits: list[Commit] = []
        self._fetches: list[Fetched] = []
        #: What was done and what became of it: ("commit", "ok"), ("fetch", "NotCoordinatorError") and so on.
        self.tally: Counter[tuple[str, str]] = Counter()
        self._answered_s: list[float] = []
        self._loop = asyncio.new_event_loop()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registers", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_committed(5)
        wait_bitten(f"{LEAST_RATE} answers a second, so that a fault meets some", self._is_busy, 60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(_LONG_PATIENCE_MS / 1000 + 10)
        if error is None and self._failure is not None:
            raise self._failure

    # --- looking -------------------------------------------------------------------------------------

    @property
    def answered(self) -> int:
        """Commits and fetches that had an answer of worth by now."""
        return len(self._answered_s)

    def _is_busy(self) -> bool:
        since = time.monotonic() - 1
        return self._failure is not None or sum(at_s >= since for at_s in self._answered_s[-LEAST_RATE:]) >= LEAST_RATE

    def committed(self, group: str) -> int:
        """How many commits of the group were accepted by now."""
        return sum(each.group == group and each.outcome is Outcome.OK for each in list(self._commits))

    def wait_committed(self, more: int, groups: Sequence[str] | None = None, timeout_s: float = 60) -> None:
        """Returns when so many more commits of each of these groups were accepted from now on."""
        goals = {group: self.committed(group) + more for group in groups or self._groups}

        def reached() -> bool:
            return self._failure is not None or all(self.committed(group) >= goal for group, goal in goals.items())

        wait_for(f"{more} more commits of each group", reached, timeout_s)
        if self._failure is not None:
            raise self._failure

    def wait_read(self, timeout_s: float = 60) -> None:
        """Returns when each group's offsets were read that is asked for from now on."""
        since = time.monotonic()

        def read() -> bool:
            recent = {each.group for each in list(self._fetches) if each.invoked_s >= since}
            return self._failure is not None or recent >= set(self._groups)

        wait_for("every group to be read", read, timeout_s)

    def longest_gap_s(self, group: str, since: float) -> float:
        """The longest time without an accepted commit of the group that began or lasted after `since` (monotonic)."""
        times = sorted({each.done for each in self._commits if each.group == group and each.outcome is Outcome.OK})
        times = [since, *(at_s for at_s in times if at_s >= since)]
        return max((after - before for before, after in itertools.pairwise(times)), default=math.inf)

    def ask_in_its_sleep(self, broker_id: int) -> None:
        """Fetches of each group that this broker finds first when it wakes up, which must be within 3 s."""
        for group in self._groups:
            asyncio.run_coroutine_threadsafe(self._fetch_of_sleeper(broker_id, group), self._loop)

    def check(self) -> None:
        """The verdict, with what it is about."""
        for (what, outcome), count in sorted(self.tally.items()):
            print(f"{what}: {outcome} {count}")
        found = list(register_violations(self._commits, self._fetches))
        print(f"verdict: {len(self._commits)} commits and {len(self._fetches)} readings judged, {len(found)} wrong")
        if not any(each.offset >= 0 for each in self._fetches):
            raise Void("void: nothing committed was ever read")
        assert not found, "\n".join(map(str, found[:10]))

    # --- the work ------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._work())
        except BaseException as error:
            self._failure = error
        finally:
            self._loop.close()

    async def _work(self) -> None:
        works: list[Coroutine[Any, Any, None]] = []
        async with asyncio.TaskGroup() as tasks:
            for number, group in enumerate(self._groups):
                works.append(self._commit_by_client(group) if number % 2 else self._commit_by_requests(group))
            works += [self._read_by_client(), *(self._read_of(each) for each in self._addresses.values())]
            for work in works:
                tasks.create_task(work)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _note(self, what: str, outcome: str) -> None:
        self.tally[what, outcome] += 1
        if outcome == "ok":
            self._answered_s.append(time.monotonic())

    async def _pause(self) -> None:
        await asyncio.sleep(_PAUSE_S * random.random() * 2)

    async def _commit_by_requests(self, group: str) -> None:
        """As seed 003 has it: find, commit, and find again after whatever went wrong; a value is tried once."""
        async with Lines(list(self._addresses.values())) as lines:
            coordinator, offset = "", 0
            while not self._stop.is_set():
                try:
                    coordinator = coordinator or await lines.find_somewhere(group, _PATIENCE_MS)
                except TidelogError as error:
                    self._note("find", type(error).__name__)
                    await asyncio.sleep(0.05)
                    continue
                offset += 1
                entries = tuple(OffsetCommitPartition(*tp, offset) for tp in self._tps)
                invoked_s = time.monotonic()
                outcomes = dict.fromkeys(self._tps, Outcome.UNKNOWN)
                refusal: TidelogError | None = None
                try:
                    answer = await lines.to(coordinator).ask(OffsetCommitRequest(group, entries), _PATIENCE_MS)
                    assert isinstance(answer, OffsetCommitResponse)
                    for each in answer.partitions:
                        outcomes[TopicPartition(each.topic, each.partition)] = _outcome_of(each.error_code)
                        refusal = refusal or error_for(each.error_code)
                except TidelogError as error:
                    refusal = error
                done_s = time.monotonic()
                assert outcomes.keys() == set(self._tps)
                self._commits += [Commit(group, tp, offset, o, invoked_s, done_s) for tp, o in outcomes.items()]
                self._note("commit by request", "ok" if refusal is None else type(refusal).__name__)
                if refusal is not None:
                    if isinstance(refusal, _ELSEWHERE) or not isinstance(refusal, BrokerError):
                        coordinator = ""
                    await asyncio.sleep(0.05)
                await self._pause()

    async def _commit_by_client(self, group: str) -> None:
        async with Consumer(self._servers, group_id=group, enable_auto_commit=False) as consumer:
            offset = 0
            while not self._stop.is_set():
                offset += 1
                invoked_s, outcome, name = time.monotonic(), Outcome.OK, "ok"
                try:
                    await consumer.commit({tp: OffsetAndMetadata(offset) for tp in self._tps}, timeout_ms=20_000)
                except TidelogError as error:
                    outcome, name = Outcome.UNKNOWN, type(error).__name__
                done_s = time.monotonic()
                self._commits += [Commit(group, tp, offset, outcome, invoked_s, done_s) for tp in self._tps]
                self._note("commit by client", name)
                await self._pause()

    async def _read_by_client(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for group in self._groups:
                tasks.create_task(self._read_group_by_client(group))

    async def _read_group_by_client(self, group: str) -> None:
        async with Consumer(self._servers, group_id=group, enable_auto_commit=False) as consumer:
            while not self._stop.is_set():
                tp = random.choice(self._tps)
                invoked_s = time.monotonic()
                try:
                    found = (await consumer.committed([tp], timeout_ms=20_000))[tp]
                except TidelogError as error:
                    self._note("fetch by client", type(error).__name__)
                else:
                    self._fetched(group, tp, -1 if found is None else found.offset, invoked_s)
                    self._note("fetch by client", "ok")
                await self._pause()

    async def _read_of(self, address: str) -> None:
        async with Lines([address]) as lines:
            while not self._stop.is_set():
                for group in self._groups:
                    try:
                        await self._fetch(lines, address, group, _PATIENCE_MS)
                        self._note("fetch of each broker", "ok")
                    except TidelogError as error:
                        self._note("fetch of each broker", type(error).__name__)
                        if not isinstance(error, BrokerError):
                            await asyncio.sleep(0.05)
                await self._pause()

    async def _fetch_of_sleeper(self, broker_id: int, group: str) -> None:
        address = self._addresses[broker_id]
        async with Lines([address]) as lines:
            try:
                await self._fetch(lines, address, group, _LONG_PATIENCE_MS)
                self._note("fetch of a sleeper", "ok")
            except TidelogError as error:
                self._note("fetch of a sleeper", type(error).__name__)

    async def _fetch(self, lines: Lines, address: str, group: str, patience_ms: int) -> None:
        wanted = tuple(DescribePartition(*tp) for tp in self._tps)
        invoked_s = time.monotonic()
        answer = await lines.to(address).ask(OffsetFetchRequest(group, wanted), patience_ms)
        assert isinstance(answer, OffsetFetchResponse)
        if refusal := error_for(answer.error_code):
            raise refusal
        for each in answer.partitions:
            if refusal := error_for(each.error_code):
                raise refusal
            self._fetched(group, TopicPartition(each.topic, each.partition), each.committed_offset, invoked_s)

    def _fetched(self, group: str, tp: TopicPartition, offset: int, invoked_s: float) -> None:
        self._fetches.append(Fetched(group, tp, offset, invoked_s, time.monotonic()))

"""Implement F16: clients that are killed during their operations. Their histories show which operations were open."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

from tidelog.errors import LocalError
from tidelog.history.group_operations import CommitFailed, CommitInvoked, CommitOk, CommitUnknown
from tidelog.history.history_files import SUFFIX
from tidelog.history.json_lines import of_fields
from tidelog.history.operations import ProduceFailed, ProduceInvoked, ProduceOk, ProduceUnknown
from tidelog.local.processes.process import Process
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.support.fault_base import FaultBase, Timing, send, wait_until

_REPLACED_S = 15.0
#: The time to wait for such an operation before a client is killed anyway.
_TIMEOUT_S = 5.0
_STOPPED_S = 0.01
#: Longer than the events of all operations that a client has open at once.
_TAIL_BYTES = 1 << 18


class ClientsKilled(FaultBase):
    """Clients that are killed while they produce and commit.

    One or two processes are stopped repeatedly for a moment (SIGSTOP). Each is killed once its histories show an open
    record and an open commit, or after 5 s. Brokers keep no histories of clients, so the clients' own histories are the
    evidence.

    Healing waits until the run has replaced the clients, and raises LocalError after 15 s.
    """

    row, name = "F16", "clients killed"
    needs = frozenset[Need]()
    lasts_ms = (500, 1_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._left: list[Unfinished] = []
        self._replaced = False

    @property
    def availability(self) -> Availability:
        # If all clients are killed at once, no client produces before the new ones start.
        return Availability(self.timing.session_timeout_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        clients = list(target.client_processes())
        if not clients:
            raise LocalError("the run has no client processes that may be killed")
        victims = rng.sample(clients, min(len(clients), rng.randint(1, 2)))
        self.on_heal(self._wait_replaced)
        for process in victims:
            self._left += await self._kill(target, process, rng)
        return f"SIGKILL to {len(victims)} of {len(clients)} client processes"

    async def _kill(self, target: Target, process: Process, rng: random.Random) -> list[Unfinished]:
        """Kill the process when a record and a commit are open, or after 5 s. Return the open operations of each of its
        histories.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TIMEOUT_S
        histories = await asyncio.to_thread(open_histories, process.pid)
        mark_continued = target.undo.to_continue(process)
        try:
            while True:
                send(process, SIGSTOP, "a client")
                await asyncio.sleep(_STOPPED_S)
                found = await asyncio.to_thread(lambda: [unfinished(path) for path in histories])
                if _is_in_the_middle(found) or loop.time() >= deadline:
                    process.signal(SIGKILL)
                    return found
                process.signal(SIGCONT)
                await asyncio.sleep(rng.uniform(0.005, 0.03))
        finally:
            process.signal(SIGCONT)
            mark_continued()

    async def _wait_replaced(self) -> None:
        await wait_until("new clients in place of those that were killed", self._are_replaced, _REPLACED_S)
        self._replaced = True

    def _are_replaced(self) -> bool:
        return all(map(began_again, self._left))

    def bit(self, evidence: Evidence) -> str | None:
        if not (_is_in_the_middle(self._left) and self._replaced):
            return None
        records, commits = sum(each.records for each in self._left), sum(each.commits for each in self._left)
        return f"{records} records and {commits} commits of killed clients have no outcome; new clients replaced them"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The numbers of records and commits that a history begins but does not end. The first `size` bytes of the history
    are complete lines.
    """

    history: Path
    size: int
    records: int
    commits: int


def _is_in_the_middle(found: Iterable[Unfinished]) -> bool:
    """Return whether these histories together have both an open record and an open commit."""
    left = list(found)
    return any(each.records for each in left) and any(each.commits for each in left)


def open_histories(pid: int) -> list[Path]:
    """Return the histories that the process has open, in order of their paths."""
    opened = set[Path]()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            path = Path(os.readlink(descriptor))
        except FileNotFoundError:
            continue
        if path.suffix == SUFFIX:
            opened.add(path)
    return sorted(opened)


def unfinished(history: Path) -> Unfinished:
    """Return the open operations according to the last 256 KiB of the history."""
    with history.open("rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES)
        file.seek(begin)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    records, commits = set[int](), set[object]()
    for line in whole.splitlines()[1 if begin else 0 :]:
        fields = json.loads(line)
        match None if "history" in fields else of_fields(fields):
            case ProduceInvoked(ids=ids):
                records.update(ids)
            case ProduceOk(ids=ids) | ProduceFailed(ids=ids) | ProduceUnknown(ids=ids):
                records.difference_update(ids)
            case CommitInvoked(group=group, tp=tp, offset=offset):
                commits.add((group, tp, offset))
            case (
                CommitOk(group=group, tp=tp, offset=offset)
                | CommitFailed(group=group, tp=tp, offset=offset)
                | CommitUnknown(group=group, tp=tp, offset=offset)
            ):
                commits.discard((group, tp, offset))
    return Unfinished(history, begin + len(whole), len(records), len(commits))


def began_again(killed: Unfinished) -> bool:
    """Return whether a restarted client has written its header to the killed client's history."""
    with killed.history.open("rb") as file:
        file.seek(killed.size)
        return b'{"history":' in file.read(4096)

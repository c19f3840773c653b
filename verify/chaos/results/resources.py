"""Count the resources that brokers hold before the faults and at the end of the run (I21).

idle    without clients: open files, and waiting operations
busy    under load, which is the same before and after: memory, and threads, because thread pools are small before they
        have work
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Final, Literal

from tidelog.history.broker_events import Broker, Resources
from tidelog.history.history_files import HistoryWriter, history_path
from tidelog.local.state import BrokerState

_ANSWER_S = 5.0
#: The time in which brokers must release the resources of clients that have gone.
_LET_GO_S = 10.0
_LOOK_EVERY_S = 0.5
_PURGATORY: Final = "tidelog_purgatory_size{"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_DELETED = " (deleted)"
#: The two conditions of a count, as parts of the histories' names and as text.
_IDLE, _BUSY = "idle", "busy"
_WHEN: Final = {_IDLE: "without clients", _BUSY: "under load"}


class ResourceCounts:
    """The resource counts. Each broker gets two histories, ID-idle and ID-busy, besides the one that the broker writes
    itself.

    The process is counted even if the broker does not answer, for example because it has no file descriptor left. A
    count that is not taken is −1. A broker whose process has ended is not counted.

    brokers   returns the brokers as of their last start
    """

    def __init__(self, results: Path, brokers: Callable[[], Sequence[BrokerState]]) -> None:
        self._results = results
        self._brokers = brokers
        self._idle: dict[int, Resources] = {}
        self._counted: dict[tuple[int, str, str], Resources] = {}
        self._writers: dict[str, HistoryWriter] = {}

    async def idle_before(self) -> None:
        """Count and record open files and waiting operations before clients start.

        Each broker's recorded number of open files is the highest of all brokers (`as_of_controllers`).
        """
        for broker, counted in await self._baselines():
            self._idle[broker.broker_id] = counted
            self._write(broker, _IDLE, replace(counted, rss=-1, threads=-1))

    async def busy(self, phase: Literal["baseline", "healed"]) -> None:
        """Count and record memory and threads while clients are at work. `phase` is before or after the faults.

        Each broker's recorded memory before the faults is the highest of all brokers (`as_of_controllers`).
        """
        for broker, counted in await (self._baselines() if phase == "baseline" else self._counts(phase)):
            self._write(broker, _BUSY, replace(counted, fds=-1, purgatory=-1))

    async def idle_after(self) -> None:
        """Count and record open files and waiting operations after the clients have gone.

        Wait up to 10 s for all brokers together until no count is higher than before, because some resources are
        released late.
        """
        deadline = time.monotonic() + _LET_GO_S
        for broker in self._brokers():
            before = self._idle.get(broker.broker_id)
            while (counted := await _count(broker, "healed")) is not None:
                if before is None or _is_back(before, counted) or time.monotonic() >= deadline:
                    self._write(broker, _IDLE, replace(counted, rss=-1, threads=-1))
                    break
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _baselines(self) -> list[tuple[BrokerState, Resources]]:
        found = await self._counts("baseline")
        counts = as_of_controllers({broker.broker_id: counted for broker, counted in found})
        return [(broker, counts[broker.broker_id]) for broker, _ in found]

    async def _counts(self, phase: str) -> list[tuple[BrokerState, Resources]]:
        """Return the counts of the brokers that can be inspected."""
        found = [(broker, await _count(broker, phase)) for broker in self._brokers()]
        return [(broker, counted) for broker, counted in found if counted is not None]

    def _write(self, broker: BrokerState, when: str, counted: Resources) -> None:
        self._counted[broker.broker_id, when, counted.phase] = counted
        name = f"{broker.broker_id}-{when}"
        if name not in self._writers:
            path, header = history_path(self._results, name), Broker(str(broker.broker_id), counted.t)
            self._writers[name] = HistoryWriter(path, header)
        self._writers[name].write(counted)

    def troubles(self) -> list[str]:
        """Return a text for each broker and condition whose counts before and after the faults cannot be compared.

        That is so if one of the two counts is missing, or only one of them includes the waiting operations.
        """
        return [
            f"the resources of broker {broker.broker_id} {condition} are not checked: {why}"
            for broker in self._brokers()
            for when, condition in _WHEN.items()
            if (why := self._missing(broker.broker_id, when))
        ]

    def _missing(self, broker_id: int, when: str) -> str:
        before, after = (self._counted.get((broker_id, when, phase)) for phase in ("baseline", "healed"))
        if before is None or after is None:
            return f"they could not be counted {'before the faults' if before is None else 'at the end of the run'}"
        if (before.purgatory < 0) != (after.purgatory < 0):
            return "the broker did not report its waiting operations at both times"
        return ""

    def close(self) -> None:
        """Close the histories."""
        for writer in self._writers.values():
            writer.close()


def as_of_controllers(counts: Mapping[int, Resources]) -> dict[int, Resources]:
    """Return the counts by broker id, each with the most open files and the most memory of all brokers.

    The controller has a connection to every broker and knows every partition, and each broker may be the controller at
    the end.
    """
    fds = max((counted.fds for counted in counts.values()), default=-1)
    rss = max((counted.rss for counted in counts.values()), default=-1)
    return {broker_id: replace(counted, fds=fds, rss=rss) for broker_id, counted in counts.items()}


def _is_back(before: Resources, now: Resources) -> bool:
    says_as_much = now.purgatory >= 0 or before.purgatory < 0
    return says_as_much and now.fds <= before.fds and now.purgatory <= before.purgatory


async def _count(broker: BrokerState, phase: str) -> Resources | None:
    """Return the counts for `phase`, or None if the process has ended or cannot be inspected."""
    with suppress(OSError):
        held, waiting = await asyncio.to_thread(lambda: (_of_process(broker.pid), _waiting(broker)))
        return Resources(time.monotonic_ns(), phase, *held, waiting)
    return None


def _of_process(pid: int) -> tuple[int, int, int]:
    """Return the number of open files, the number of threads, and the bytes of unshared resident memory of a process.

    Files that still have a path are not counted, because the number of logs' files follows from the number of segments.
    Sockets, pipes and deleted files are counted. Raise OSError if the process has ended.
    """
    process = Path("/proc", str(pid))
    open_files = 0
    for link in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            leads_to = os.readlink(link)
            open_files += not leads_to.startswith("/") or leads_to.endswith(_DELETED)
    resident, shared = map(int, (process / "statm").read_text().split()[1:3])
    return open_files, len(list((process / "task").iterdir())), (resident - shared) * _PAGE_BYTES


def _waiting(broker: BrokerState) -> int:
    """Return the number of operations in all of the broker's purgatories, or −1 if the broker does not report it."""
    if not broker.http_port:
        return -1
    try:
        with urllib.request.urlopen(f"{broker.http_address}/metrics", timeout=_ANSWER_S) as answer:
            lines = answer.read().decode(errors="replace").splitlines()
    except (OSError, HTTPException):
        return -1
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(_PURGATORY))

"""What brokers hold, counted from outside before the faults and when all is over (I21).

idle    without clients: files, and operations that wait
busy    under load, which is the same before and after: memory, and threads, whose pools are small before they have work
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
#: What clients held is let go of within this time once they are gone.
_LET_GO_S = 10.0
_LOOK_EVERY_S = 0.5
_PURGATORY: Final = "tidelog_purgatory_size{"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_DELETED = " (deleted)"
#: When something is counted, in the names of histories and in words.
_IDLE, _BUSY = "idle", "busy"
_WHEN: Final = {_IDLE: "without clients", _BUSY: "under load"}


class ResourceCounts:
    """Two histories for each broker, beside the one that the broker writes itself.

    Its process is counted also where the broker answers nobody, as one that has no descriptor left.

    brokers   as they run now
    """

    def __init__(self, results: Path, brokers: Callable[[], Sequence[BrokerState]]) -> None:
        self._results = results
        self._brokers = brokers
        self._idle: dict[int, Resources] = {}
        self._counted: dict[tuple[int, str, str], Resources] = {}
        self._writers: dict[str, HistoryWriter] = {}

    async def idle_before(self) -> None:
        """Before there are clients."""
        found = [(broker, await _count(broker, "baseline")) for broker in self._brokers()]
        counts = as_of_controllers({broker.broker_id: counted for broker, counted in found if counted is not None})
        for broker, _ in found:
            if (counted := counts.get(broker.broker_id)) is not None:
                self._idle[broker.broker_id] = counted
                self._write(broker, _IDLE, replace(counted, rss=-1, threads=-1))

    async def busy(self, phase: Literal["baseline", "healed"]) -> None:
        """While clients are at work."""
        for broker in self._brokers():
            if (counted := await _count(broker, phase)) is not None:
                self._write(broker, _BUSY, replace(counted, fds=-1, purgatory=-1))

    async def idle_after(self) -> None:
        """When clients have gone. What goes late has gone, too."""
        deadline = time.monotonic() + _LET_GO_S
        for broker in self._brokers():
            before = self._idle.get(broker.broker_id)
            while (counted := await _count(broker, "healed")) is not None:
                if before is None or _is_back(before, counted) or time.monotonic() >= deadline:
                    self._write(broker, _IDLE, replace(counted, rss=-1, threads=-1))
                    break
                await asyncio.sleep(_LOOK_EVERY_S)

    def _write(self, broker: BrokerState, when: str, counted: Resources) -> None:
        self._counted[broker.broker_id, when, counted.phase] = counted
        name = f"{broker.broker_id}-{when}"
        if name not in self._writers:
            path, header = history_path(self._results, name), Broker(str(broker.broker_id), counted.t)
            self._writers[name] = HistoryWriter(path, header)
        self._writers[name].write(counted)

    def troubles(self) -> list[str]:
        """Of whom something was not counted twice, so that it is compared with nothing."""
        return [
            f"what broker {broker.broker_id} holds {words} is not judged: {why}"
            for broker in self._brokers()
            for when, words in _WHEN.items()
            if (why := self._missing(broker.broker_id, when))
        ]

    def _missing(self, broker_id: int, when: str) -> str:
        before, after = (self._counted.get((broker_id, when, phase)) for phase in ("baseline", "healed"))
        if before is None or after is None:
            return f"it could not be counted {'before the faults' if before is None else 'when all was over'}"
        return "it did not say each time what waits in it" if (before.purgatory < 0) != (after.purgatory < 0) else ""

    def close(self) -> None:
        """The histories are whole."""
        for writer in self._writers.values():
            writer.close()


def as_of_controllers(counts: Mapping[int, Resources]) -> dict[int, Resources]:
    """Each with the files that the controller has open, since each may be the controller when all is over: who is has a
    line to every broker.
    """
    most = max((counted.fds for counted in counts.values()), default=-1)
    return {broker_id: replace(counted, fds=most) for broker_id, counted in counts.items()}


def _is_back(before: Resources, now: Resources) -> bool:
    says_as_much = now.purgatory >= 0 or before.purgatory < 0
    return says_as_much and now.fds <= before.fds and now.purgatory <= before.purgatory


async def _count(broker: BrokerState, phase: str) -> Resources | None:
    """None where its process is gone, or not ours to look into."""
    with suppress(OSError):
        held, waiting = await asyncio.to_thread(lambda: (_of_process(broker.pid), _waiting(broker)))
        return Resources(time.monotonic_ns(), phase, *held, waiting)
    return None


def _of_process(pid: int) -> tuple[int, int, int]:
    """Its open files, its threads, and the bytes of memory that it shares with nobody.

    A log's files are as many as its segments, and are not counted; those that were deleted are.
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
    """Operations in its purgatories; −1 where it does not say."""
    if not broker.http_port:
        return -1
    try:
        with urllib.request.urlopen(f"{broker.http_address}/metrics", timeout=_ANSWER_S) as answer:
            lines = answer.read().decode(errors="replace").splitlines()
    except (OSError, HTTPException):
        return -1
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(_PURGATORY))

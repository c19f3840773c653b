"""F16–F18: clients that are killed, and brokers without memory or without file descriptors."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

from tidelog.aio import Admin, Consumer
from tidelog.chaos.fault import Availability, Evidence, Need, Target
from tidelog.chaos.faults import signs
from tidelog.chaos.faults.harm import Harm, Timing, wait_until
from tidelog.chaos.faults.processes import BrokerFault, leader_of_one
from tidelog.chaos.faults.tools import quietly
from tidelog.errors import LocalError, TidelogError
from tidelog.local.process import Process
from tidelog.model import Endpoint
from tidelog.settings import ConsumerOptions

_REPLACED_S = 15.0
_CONNECTIONS = 64
_READERS, _MUCH_BYTES = 4, 50 << 20
_CONNECT_S = 2.0


class ClientsKilled(Harm):
    """In the middle of what they produce, read or commit. Brokers keep nothing of them."""

    row, name = "F16", "clients killed"
    needs = frozenset[Need]()
    lasts_ms = (500, 1_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._killed: set[int] = set()
        self._replaced = False

    @property
    def availability(self) -> Availability:
        # Where all are killed at once, nobody produces before there are new ones.
        return Availability(self.timing.session_timeout_ms)

    async def inject(self, target: Target, dice: random.Random) -> str:
        clients = list(target.client_processes())
        if not clients:
            raise LocalError("no client may be killed")
        victims = dice.sample(clients, min(len(clients), dice.randint(1, 2)))
        self.mend(lambda: self._wait_replaced(target, len(clients)))
        for process in victims:
            if process.signal(SIGKILL):
                self._killed.add(process.pid)
        return f"SIGKILL to {len(self._killed)} of {len(clients)} client processes"

    async def _wait_replaced(self, target: Target, count: int) -> None:
        def replaced() -> bool:
            running = {process.pid for process in target.client_processes() if process.running}
            return len(running - self._killed) >= count

        await wait_until("new clients in place of those that were killed", replaced, _REPLACED_S)
        self._replaced = True

    def bit(self, evidence: Evidence) -> str | None:
        replaced = f"{len(self._killed)} processes ended, others took their place"
        return replaced if self._killed and self._replaced else None


class LimitedBroker(BrokerFault):
    """One that may not have more of something than it has; started again if that ended it."""

    needs = frozenset({Need.PROCESSES, Need.RESTARTS, Need.FILES})
    lasts_ms = (2_000, 3_000)
    limit: int
    option: str

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._seen = ""

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.silent_ms)

    def restrict(self, target: Target, process: Process, soft: int) -> None:
        """Until the fault is healed."""
        before = resource.prlimit(process.pid, self.limit)
        values = ":".join("unlimited" if value == resource.RLIM_INFINITY else str(value) for value in before)
        put_back = target.undo.to_run(*quietly("prlimit", f"--pid={process.pid}", f"--{self.option}={values}"))

        async def lift() -> None:
            if process.running:
                with suppress(ProcessLookupError):
                    resource.prlimit(process.pid, self.limit, before)
            put_back()

        self.mend(lift)
        resource.prlimit(process.pid, self.limit, (soft, before[1]))


class OutOfMemory(LimitedBroker):
    """No page more than it has. It may end, or refuse; it may not hang."""

    row, name = "F17", "broker out of memory"
    limit, option = resource.RLIMIT_AS, "as"
    #: What a broker says, or the interpreter does for it, when it gets no memory.
    _words = ("MemoryError", "Cannot allocate memory", "out of memory")

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = leader_of_one(await target.view(), dice)
        process, log = target.broker_process(victim), target.broker_log(victim)
        before = await asyncio.to_thread(_count, log, self._words)
        self.will_restart(target, victim)

        async def look() -> None:
            if not process.running:
                self._seen = f"broker {victim} ended"
            elif refusals := await asyncio.to_thread(_count, log, self._words) - before:
                self._seen = f"broker {victim} got no memory {refusals} times"

        self.restrict(target, process, _address_space(process.pid))
        self.mend(look)
        for _ in range(_READERS):
            self.meanwhile(_read_over_and_over(target))
        return f"{who} gets no more memory"

    def bit(self, evidence: Evidence) -> str | None:
        return self._seen or signs.registered_anew(evidence, self.victims)


class OutOfDescriptors(LimitedBroker):
    """It keeps the connections that it has, takes no more, and takes them again when it may."""

    row, name = "F18", "broker out of file descriptors"
    limit, option = resource.RLIMIT_NOFILE, "nofile"
    _words = ("Too many open files",)

    async def inject(self, target: Target, dice: random.Random) -> str:
        victim, who = leader_of_one(await target.view(), dice)
        process = target.broker_process(victim)
        self.will_restart(target, victim)
        soft = _open_files(process.pid) + dice.randint(2, 6)
        self.restrict(target, process, soft)
        held: list[socket.socket] = []

        async def let_go() -> None:
            for each in held:
                each.close()

        self.mend(let_go)
        log = target.broker_log(victim)
        before = await asyncio.to_thread(_count, log, self._words)

        async def look() -> None:
            refusals = await asyncio.to_thread(_count, log, self._words) - before
            if refusals and not self._seen:
                self._seen = f"broker {victim} got no file descriptor {refusals} times"

        self.mend(look)
        await asyncio.to_thread(_connect, await _clients_door(target, victim), held)
        with suppress(LocalError):
            await wait_until("all descriptors to be taken", lambda: _open_files(process.pid) >= soft - 1, 2)
            self._seen = f"all {soft} descriptors of broker {victim} were taken, {len(held)} connections asked for more"
        return f"{who} gets no more than {soft} file descriptors, and {len(held)} connections"

    def bit(self, evidence: Evidence) -> str | None:
        return self._seen or None


async def _read_over_and_over(target: Target) -> None:
    """Asks for as much as there is, so that brokers need memory."""
    options: ConsumerOptions = {
        "auto_offset_reset": "earliest",
        "max_partition_fetch_bytes": _MUCH_BYTES,
        "fetch_max_bytes": _MUCH_BYTES,
    }
    while True:
        with suppress(TidelogError):
            async with Consumer(target.bootstrap_servers, **options) as consumer:
                consumer.assign(target.tps)
                for _ in range(20):
                    await consumer.poll(timeout_ms=100)


async def _clients_door(target: Target, broker: int) -> Endpoint:
    async with Admin(target.bootstrap_servers) as admin:
        cluster = await admin.describe_cluster()
    return cluster.brokers[broker]


def _address_space(pid: int) -> int:
    """Bytes that the process has mapped."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def _open_files(pid: int) -> int:
    """0 for a process that is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except FileNotFoundError:
        return 0


def _count(log: Path, words: Sequence[str]) -> int:
    """How often a broker said or printed such a thing."""
    texts = [path.read_text(errors="replace") for path in (log, log.with_suffix(".out")) if path.exists()]
    return sum(text.count(word) for text in texts for word in words)


def _connect(endpoint: Endpoint, held: list[socket.socket]) -> None:
    for _ in range(_CONNECTIONS):
        with suppress(OSError):
            held.append(socket.create_connection((endpoint.host, endpoint.port), _CONNECT_S))

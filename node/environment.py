"""Everything that a broker takes from outside its own process, through one object.

Beside it there is only the event loop: timers are its, and so are threads (`run_in_executor`). A broker on another loop
in another world is this very broker.
"""

from __future__ import annotations

import asyncio
import logging
import random
import resource
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from cluster.zookeeper.kazoo_store import ZooKeeperStore
from cluster.zookeeper.store import Store
from node.controller.failure_detector import ProbeOutcome, probe
from node.events.recorder import NO_EVENTS, Events
from node.net.router import Listen, Router
from node.runtime.watchdog import Guard, Watchdog, end_process
from node.settings import BrokerSettings
from storage.descriptor_reserve import DescriptorReserve
from storage.files import Files, RealFiles
from tidelog.clock import Clock, SystemClock
from tidelog.model import Endpoint
from tidelog.protocol.native.dealer import Dealer, Dial

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: More than ZeroMQ lets wait to be accepted (100), but no more than an eighth of what the process may have.
_DESCRIPTORS_KEPT, _PART_KEPT = 128, 8


class BrokerEnvironment(Protocol):
    """
    clock       the machine's
    files       its disks
    dice        what ids and choices are drawn from
    dial        opens a line to another broker
    listen      takes what others send
    probe       one plain connect
    sleep_s     stops the thread that calls it
    """

    @property
    def clock(self) -> Clock: ...
    @property
    def files(self) -> Files: ...
    @property
    def dice(self) -> random.Random: ...
    @property
    def dial(self) -> Dial: ...
    @property
    def listen(self) -> Listen: ...
    @property
    def probe(self) -> Callable[[Endpoint], Awaitable[ProbeOutcome]]: ...
    @property
    def sleep_s(self) -> Callable[[float], object]: ...

    def monotonic_ns(self) -> int:
        """The clock of `clock.monotonic_ms`, for measuring."""

    def boot_id(self) -> str | None:
        """Changes when the machine starts anew; None where it cannot be known."""

    async def open_store(self, settings: BrokerSettings) -> Store:
        """A session with ZooKeeper. UnreachableError."""

    def guard(self, timeout_ms: int) -> Guard:
        """One that has not been started."""

    def keep_history(self, settings: BrokerSettings) -> tuple[Events, Callable[[], None]]:
        """What the broker writes down of itself, and what ends it. OSError where it cannot be kept."""


class RealEnvironment:
    """The machine that this process runs on."""

    def __init__(self) -> None:
        self.clock: Clock = SystemClock()
        self.files: Files = RealFiles(DescriptorReserve(_kept_descriptors(), self.clock))
        self.dice: random.Random = random.SystemRandom()
        self.dial: Dial = Dealer
        self.listen: Listen = Router
        self.probe: Callable[[Endpoint], Awaitable[ProbeOutcome]] = probe
        self.sleep_s: Callable[[float], object] = time.sleep

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def boot_id(self) -> str | None:
        try:
            return _BOOT_ID.read_text(encoding="ascii").strip()
        except OSError:
            return None

    async def open_store(self, settings: BrokerSettings) -> Store:
        return await ZooKeeperStore.open(
            settings.zookeeper,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            clock=self.clock,
            connect_timeout_ms=settings.zookeeper_connect_timeout_ms,
        )

    def guard(self, timeout_ms: int) -> Guard:
        return Watchdog(timeout_ms, end_process)

    def keep_history(self, settings: BrokerSettings) -> tuple[Events, Callable[[], None]]:
        if not settings.history_file:
            return NO_EVENTS, lambda: None
        # Late: of a hundred brokers one keeps a history.
        from node.events.history_file import EventRecorder, HistoryFile, Tracebacks
        from tidelog.history.broker_events import Broker

        loop = asyncio.get_running_loop()
        name = str(settings.broker_id)
        history = HistoryFile(Path(settings.history_file), Broker(name, self.monotonic_ns()), loop.call_later)
        events = EventRecorder(history.keep, self.monotonic_ns)
        tracebacks = Tracebacks(events, loop)
        logging.getLogger().addHandler(tracebacks)

        def end() -> None:
            logging.getLogger().removeHandler(tracebacks)
            history.close()

        return events, end


def _kept_descriptors() -> int:
    """For files, where connections take all others."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _DESCRIPTORS_KEPT if most == resource.RLIM_INFINITY else min(_DESCRIPTORS_KEPT, most // _PART_KEPT)

"""Everything that a broker uses from outside its own process, through one object.

The only other dependency is the event loop, which provides timers and threads (`run_in_executor`). Therefore tests and
the simulator run the production broker with another environment and another loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from cluster.zookeeper.kazoo_store import ZooKeeperStore
from cluster.zookeeper.store import Store
from node.controller.failure_detector import ProbeOutcome, probe
from node.events.recorder import NO_EVENTS, Events
from node.kafka.server_socket import Serve, serve_tcp
from node.net.zeromq.dealer import Dealer, Dial
from node.net.zeromq.router import Listen, Router
from node.process.descriptors import descriptor_limit, share_descriptors
from node.process.watchdog import Guard, Watchdog, end_process
from node.settings.broker_settings import BrokerSettings
from storage.descriptor_reserve import DescriptorReserve
from storage.files import Files, RealFiles
from storage.open_files import OpenFiles
from tidelog.clock import Clock, SystemClock
from tidelog.model import Endpoint

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class BrokerEnvironment(Protocol):
    """The machine that a broker runs on, real or simulated.

    clock             the clock of the machine
    files             the disks of the machine
    max_connections   how many connections of clients the process has descriptors for
    rng               the source of ids and random choices
    dial              opens a connection to another broker
    listen            binds an endpoint for brokers and receives messages there
    serve             binds an endpoint for clients and accepts connections there
    probe             makes one plain TCP connect
    sleep_s           blocks the calling thread for so many seconds
    """

    @property
    def clock(self) -> Clock: ...
    @property
    def files(self) -> Files: ...
    @property
    def max_connections(self) -> int: ...
    @property
    def rng(self) -> random.Random: ...
    @property
    def dial(self) -> Dial: ...
    @property
    def listen(self) -> Listen: ...
    @property
    def serve(self) -> Serve: ...
    @property
    def probe(self) -> Callable[[Endpoint], Awaitable[ProbeOutcome]]: ...
    @property
    def sleep_s(self) -> Callable[[float], object]: ...

    def monotonic_ns(self) -> int:
        """Return the time of the clock behind `clock.monotonic_ms` in nanoseconds, to measure durations."""

    def boot_id(self) -> str | None:
        """Return an id that changes when the machine boots, or None if the machine has none."""

    async def open_store(self, settings: BrokerSettings) -> Store:
        """Open a session with ZooKeeper. Raise UnreachableError if ZooKeeper does not answer in time."""

    def guard(self, timeout_ms: int) -> Guard:
        """Return a guard, not started yet, that ends the process if its event loop hangs for `timeout_ms`."""

    def keep_history(self, settings: BrokerSettings) -> tuple[Events, Callable[[], None]]:
        """Return the recorder of the broker's events, and a function that closes it.

        Raise OSError if the history file cannot be written.
        """


class RealEnvironment:
    """The machine that this process runs on."""

    def __init__(self) -> None:
        self.clock: Clock = SystemClock()
        shares = share_descriptors(descriptor_limit())
        self.files: Files = RealFiles(OpenFiles(shares.files, DescriptorReserve(shares.reserve, self.clock)))
        self.max_connections = shares.connections
        self.rng: random.Random = random.SystemRandom()
        self.dial: Dial = Dealer
        self.listen: Listen = Router
        self.serve: Serve = serve_tcp
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
        # Imported late, because few brokers record a history.
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

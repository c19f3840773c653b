"""A session during an outage: a ZooKeeper that stops answering, and one that is killed and restarted."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from cluster.zookeeper.kazoo_store import ZooKeeperStore
from cluster.zookeeper.store import OutcomeUnknownError, SessionChanged, SessionState, StoreEvent
from tests.cluster.stores import TIMEOUT_MS
from tests.processes.harness.waiting import is_stopped, wait_for
from tests.reserved_ports import reserved_port
from tidelog.clock import SystemClock
from tidelog.local.zookeeper import EmbeddedZooKeeper


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        yield server


async def test_restarted_zookeeper_still_has_the_session_and_its_ephemerals(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    store = await ZooKeeperStore.open(own_zookeeper.hosts, session_timeout_ms=TIMEOUT_MS, clock=SystemClock())
    events: list[StoreEvent] = []
    back = asyncio.Event()

    def note(event: StoreEvent) -> None:
        events.append(event)
        if event == SessionChanged(SessionState.CONNECTED):
            back.set()

    store.subscribe(note)
    _, before = await store.create("/e", ephemeral=True)
    assert own_zookeeper.process is not None
    own_zookeeper.process.signal(signal.SIGKILL)
    await asyncio.to_thread(own_zookeeper.process.wait, 5000)
    with pytest.raises(OutcomeUnknownError):
        await store.set("/e", b"x", 7)
    confirmed_ms = store.confirmed_at_ms
    await asyncio.to_thread(own_zookeeper.start)
    async with asyncio.timeout(20):
        await back.wait()
    assert store.confirmed_at_ms == confirmed_ms, "connected again is not yet answered"
    await store.sync("/")
    after = await store.exists("/e")
    assert after is not None
    assert (after.czxid, after.owner) == (before.czxid, store.session_id)
    assert store.confirmed_at_ms > confirmed_ms
    assert SessionChanged(SessionState.EXPIRED) not in events
    assert events[0] == SessionChanged(SessionState.SUSPENDED)
    await store.close()


async def test_hung_zookeeper_gives_an_unknown_outcome_in_a_session_timeout(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    clock = SystemClock()
    store = await ZooKeeperStore.open(own_zookeeper.hosts, session_timeout_ms=1000, clock=clock)
    await store.create("/a")
    assert own_zookeeper.process is not None
    own_zookeeper.process.signal(signal.SIGSTOP)
    try:
        pid = own_zookeeper.process.pid
        wait_for("ZooKeeper stops", lambda: is_stopped(pid))
        start_ms, confirmed_ms = clock.monotonic_ms(), store.confirmed_at_ms
        with pytest.raises(OutcomeUnknownError):
            await store.set("/a", b"x")
        assert clock.monotonic_ms() - start_ms < 2000
        assert store.confirmed_at_ms == confirmed_ms
    finally:
        own_zookeeper.process.signal(signal.SIGCONT)
    await store.close()


class HandshakeSwallower:
    """A relay in front of a server. While it is `starting` it reads all requests and answers none."""

    def __init__(self, server: EmbeddedZooKeeper) -> None:
        self._port = server.port
        self.starting = False
        self.has_forgotten = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            self.close_connections()

    def close_connections(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self.starting:
            if await reader.read(1):
                self.has_forgotten.set()
            return
        there, onwards = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(onwards)
        await asyncio.gather(self._pass_on(reader, onwards), self._pass_on(there, writer))

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(4096):
                target.write(data)
        target.close()


async def test_forgotten_handshake_is_repeated_before_a_session_timeout(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    relay = HandshakeSwallower(own_zookeeper)
    async with relay.listening() as hosts:
        store = await ZooKeeperStore.open(hosts, session_timeout_ms=10_000, clock=SystemClock())
        states: asyncio.Queue[StoreEvent] = asyncio.Queue()
        store.subscribe(states.put_nowait)
        for _ in range(2):
            relay.starting = True
            relay.has_forgotten.clear()
            relay.close_connections()
            assert await states.get() == SessionChanged(SessionState.SUSPENDED)
            async with asyncio.timeout(5):
                await relay.has_forgotten.wait()
                relay.starting = False
                assert await states.get() == SessionChanged(SessionState.CONNECTED)
        await store.close()


def test_broker_told_to_stop_does_not_wait_for_zookeeper() -> None:
    async def scenario() -> None:
        opening = asyncio.create_task(
            ZooKeeperStore.open(
                f"127.0.0.1:{reserved_port()}",
                session_timeout_ms=TIMEOUT_MS,
                clock=SystemClock(),
                connect_timeout_ms=60_000,
            )
        )
        await asyncio.sleep(0.1)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    started = time.monotonic()
    asyncio.run(scenario())  # with its end comes the end of all its threads
    assert time.monotonic() - started < 20


HUNG = """
import asyncio, sys, time
from cluster.zookeeper.kazoo_store import ZooKeeperStore
from node.process.zookeeper_session import ZooKeeperSession
from node.process.watchdog import Watchdog, end_process
from tidelog.clock import SystemClock

async def main():
    store = await ZooKeeperStore.open(sys.argv[1], session_timeout_ms=1000, clock=SystemClock())
    await ZooKeeperSession(store, SystemClock(), Watchdog(store.session_timeout_ms, end_process)).start()
    await store.create("/brokers", ephemeral=True)
    print("up", flush=True)
    time.sleep(60)

asyncio.run(main())
"""


def test_a_hung_process_is_ended_although_its_session_would_be_kept(zookeeper: EmbeddedZooKeeper) -> None:
    hung = subprocess.run(
        [sys.executable, "-c", HUNG, f"{zookeeper.hosts}/hung"], capture_output=True, text=True, timeout=30, check=False
    )
    assert hung.stdout == "up\n", hung.stderr
    assert hung.returncode == 70

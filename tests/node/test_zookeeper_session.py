"""The time for which a broker may assume that its session is alive."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from cluster.zookeeper.in_memory import MemoryStore, MemoryZooKeeper, NetworkConditions
from cluster.zookeeper.store import OutcomeUnknownError, SessionChanged, SessionState, StoreEvent
from node.process.watchdog import Watchdog
from node.process.zookeeper_session import ZooKeeperSession
from tests.hand_clock import HandClock
from tests.virtual_time import VirtualClock, on_virtual_time

TIMEOUT_MS = 6000


class Counting(MemoryStore):
    """Counts its syncs: all that began, those in flight, and the most at one time."""

    begun = in_flight = most = 0

    async def sync(self, path: str) -> None:
        self.begun += 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await super().sync(path)
        finally:
            self.in_flight -= 1


async def beside_a_server_that_has_lost_its_leader() -> Counting:
    """Return a store at a server that receives no writes of the others, and answers reads from its own data."""
    never_ms = 24 * 3600 * 1000
    zookeeper = MemoryZooKeeper(
        VirtualClock(), TIMEOUT_MS, servers=2, conditions=NetworkConditions(lag_ms=(never_ms, never_ms))
    )
    with suppress(OutcomeUnknownError):  # the writer may be connected to the same server
        await zookeeper.connect().create("/new")
    stores = [zookeeper.connect(Counting) for _ in range(6)]
    behind = [store for store in stores if await store.exists("/new") is None]
    return behind[0]


async def test_session_is_cut_off_one_timeout_after_the_last_confirmation() -> None:
    clock = HandClock()
    zookeeper = MemoryZooKeeper(clock, session_timeout_ms=300)
    store = zookeeper.connect()
    session = ZooKeeperSession(store, clock, Watchdog(store.session_timeout_ms, lambda: None))
    await store.sync("/")
    clock.at_ms += 299
    assert not session.cut_off
    clock.at_ms += 1
    assert session.cut_off
    await session.start()
    for _ in range(5):  # the first heartbeat is answered within as many iterations of the loop
        await asyncio.sleep(0)
    assert not session.cut_off, "the heartbeat was answered"
    await session.stop()


@on_virtual_time
async def test_session_without_a_connection_may_have_ended() -> None:
    zookeeper = MemoryZooKeeper(VirtualClock(), TIMEOUT_MS)
    store = zookeeper.connect()
    session = ZooKeeperSession(store, VirtualClock(), Watchdog(TIMEOUT_MS, lambda: None))
    await session.start()
    found: dict[SessionState, bool] = {}

    def note(event: StoreEvent) -> None:
        if isinstance(event, SessionChanged):
            found[event.state] = session.may_have_ended

    store.subscribe(note)
    zookeeper.expire(store.session_id)
    await asyncio.sleep(1)
    assert found[SessionState.SUSPENDED] and not found[SessionState.CONNECTED]
    assert not session.may_have_ended
    await session.stop()


@on_virtual_time
async def test_session_on_a_server_without_quorum_is_cut_off() -> None:
    store = await beside_a_server_that_has_lost_its_leader()
    session = ZooKeeperSession(store, VirtualClock(), Watchdog(TIMEOUT_MS, lambda: None))
    await session.start()
    await asyncio.sleep(TIMEOUT_MS / 1000 - 0.001)
    assert not session.cut_off
    await asyncio.sleep(0.001)
    assert session.cut_off
    await session.stop()


@on_virtual_time
async def test_unanswered_heartbeats_do_not_pile_up() -> None:
    store = await beside_a_server_that_has_lost_its_leader()
    session = ZooKeeperSession(store, VirtualClock(), Watchdog(TIMEOUT_MS, lambda: None))
    await session.start()
    await asyncio.sleep(10 * TIMEOUT_MS / 1000)
    assert store.most == 1
    assert 5 <= store.begun <= 10, "each heartbeat is given up after a session timeout"
    await session.stop()

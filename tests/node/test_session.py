"""How long a broker may believe in its session."""

from __future__ import annotations

import asyncio

from cluster.memory import MemoryZooKeeper
from node.session import Session
from node.watchdog import Watchdog
from tests.hand_clock import HandClock


async def test_a_session_is_cut_off_one_timeout_after_the_last_answered_request_was_sent() -> None:
    clock = HandClock()
    zookeeper = MemoryZooKeeper(clock, session_timeout_ms=300)
    store = zookeeper.connect()
    session = Session(store, clock, Watchdog(store.session_timeout_ms, lambda: None))
    await store.exists("/")
    clock.at_ms += 299
    assert not session.cut_off
    clock.at_ms += 1
    assert session.cut_off
    await session.start()
    for _ in range(5):  # its first heartbeat goes there and back in as many turns
        await asyncio.sleep(0)
    assert not session.cut_off, "the heartbeat was answered"
    await session.stop()

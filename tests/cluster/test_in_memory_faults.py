"""The in-memory ZooKeeper under faults: its clients see what clients of a real one would."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from cluster.zookeeper.in_memory import FAULTLESS, MemoryStore, MemoryZooKeeper, NetworkConditions
from cluster.zookeeper.store import (
    Create,
    NodeChanged,
    OutcomeUnknownError,
    SessionChanged,
    SessionExpiredError,
    SessionState,
    StoreEvent,
    UnreachableError,
)
from tests.virtual_time import VirtualClock, on_virtual_time, until

TIMEOUT_MS = 6000
CONNECTED, SUSPENDED, EXPIRED = map(
    SessionChanged, (SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED)
)


class Stage:
    """A client whose events are recorded, and another one without faults."""

    def __init__(self, conditions: NetworkConditions = FAULTLESS, *, seed: int = 1, servers: int = 1) -> None:
        self.zookeeper = MemoryZooKeeper(VirtualClock(), TIMEOUT_MS, servers=servers, rng=Random(seed))
        self.zookeeper.conditions = NetworkConditions(lag_ms=conditions.lag_ms)
        self.other = self.zookeeper.connect()
        self.store = self.zookeeper.connect()
        self.store.network.conditions = conditions
        self.events: list[StoreEvent] = []
        self.store.subscribe(self.events.append)

    async def outcome(self, request: Coroutine[Any, Any, Any]) -> str:
        """Return the outcome as the client sees it."""
        try:
            await request
        except OutcomeUnknownError:
            return "unknown"
        return "done"

    def has(self, path: str) -> bool:
        return path.rpartition("/")[2] in self.zookeeper.node("/").children


def now_ms() -> int:
    return VirtualClock().monotonic_ms()


# --- delays --------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_requests_and_answers_take_their_time_and_are_pipelined() -> None:
    stage = Stage(NetworkConditions(request_ms=(30, 30), answer_ms=(20, 20)))
    begun_ms = now_ms()
    writes = [asyncio.ensure_future(stage.store.create(f"/{number}")) for number in range(5)]
    await asyncio.sleep(0.04)
    assert stage.has("/4") and not writes[0].done()
    await asyncio.gather(*writes)
    assert now_ms() - begun_ms == 50
    assert stage.store.confirmed_at_ms == begun_ms, "the session is confirmed as of the sending"


@on_virtual_time
async def test_a_watch_that_comes_late_comes_before_newer_data() -> None:
    stage = Stage(NetworkConditions(watch_ms=(700, 700)))
    await stage.store.create("/a", b"old")
    await stage.store.get("/a", watch=True)
    begun_ms = now_ms()
    await stage.other.set("/a", b"new")
    assert stage.events == []
    node = await stage.store.get("/a")
    assert (node.data, stage.events) == (b"new", [NodeChanged("/a")])
    assert now_ms() - begun_ms == 700


# --- connections ---------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_broken_connection_leaves_the_outcome_open_in_both_ways() -> None:
    seen = set()
    for wait_s in (0.01, 0.04):
        stage = Stage(NetworkConditions(request_ms=(30, 30), answer_ms=(30, 30), reconnect_ms=(50, 50)))
        write = asyncio.ensure_future(stage.outcome(stage.store.create("/a")))
        await asyncio.sleep(wait_s)
        session_id = stage.store.session_id
        stage.store.network.drop()
        assert await write == "unknown"
        await until(lambda: stage.events == [SUSPENDED, CONNECTED])  # noqa: B023
        assert stage.store.session_id == session_id
        seen.add(stage.has("/a"))
    assert seen == {False, True}


@on_virtual_time
async def test_connections_break_before_or_after_a_write_at_the_given_rate() -> None:
    stage = Stage(NetworkConditions(breaks=0.3, reconnect_ms=(1, 1)))
    seen = []
    for number in range(300):
        await until(lambda: stage.store.connected)
        seen.append((await stage.outcome(stage.store.create(f"/{number}")), stage.has(f"/{number}")))
    assert set(seen) == {("done", True), ("unknown", True), ("unknown", False)}
    assert 50 < sum(outcome == "unknown" for outcome, _ in seen) < 150
    assert EXPIRED not in stage.events


@on_virtual_time
async def test_watches_end_with_their_connection() -> None:
    stage = Stage()
    await stage.store.exists("/a", watch=True)
    stage.store.network.drop()
    await until(lambda: stage.store.connected)
    await stage.other.create("/a")
    await stage.store.sync("/")
    assert stage.events == [SUSPENDED, CONNECTED]


@on_virtual_time
async def test_write_loses_its_request_or_answer_on_command() -> None:
    stage = Stage()
    stage.store.lose_requests = 1
    assert (await stage.outcome(stage.store.create("/a")), stage.has("/a")) == ("unknown", False)
    stage.store.lose_answers = 1
    assert (await stage.outcome(stage.store.create("/a")), stage.has("/a")) == ("unknown", True)
    assert stage.store.connected


# --- silence -------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_unnoticed_silence_only_delays_requests() -> None:
    stage = Stage()
    stage.store.network.cut()
    write = asyncio.ensure_future(stage.store.create("/a"))
    await asyncio.sleep(1.9)
    assert stage.store.connected and not write.done()
    stage.store.network.heal()
    await write
    await asyncio.sleep(TIMEOUT_MS / 500)
    assert stage.events == []


@on_virtual_time
async def test_silence_shorter_than_the_session_costs_only_the_connection() -> None:
    stage = Stage()
    await stage.store.create("/e", ephemeral=True)
    stage.store.network.cut()
    await asyncio.sleep(4.1)
    assert stage.events == [SUSPENDED]
    stage.store.network.heal()
    await until(lambda: stage.events == [SUSPENDED, CONNECTED])
    await asyncio.sleep(TIMEOUT_MS / 500)
    assert stage.has("/e") and stage.events == [SUSPENDED, CONNECTED]


@on_virtual_time
async def test_silent_session_expires_and_its_client_learns_it_on_reconnect() -> None:
    stage = Stage()
    await stage.store.create("/e", ephemeral=True)
    first = stage.store.session_id
    await stage.other.exists("/e", watch=True)
    seen: list[StoreEvent] = []
    stage.other.subscribe(seen.append)
    stage.store.network.cut()
    await until(lambda: seen == [NodeChanged("/e")])
    assert stage.events == [SUSPENDED]
    stage.store.network.heal()
    await until(lambda: stage.events == [SUSPENDED, EXPIRED, CONNECTED])
    assert stage.store.session_id not in (0, first)
    _, stat = await stage.store.create("/e", ephemeral=True)
    assert stat.owner == stage.store.session_id


@on_virtual_time
async def test_session_lives_for_its_timeout_after_the_last_request() -> None:
    for seed in range(10):
        stage = Stage(seed=seed)
        await stage.store.create("/e", ephemeral=True)
        stage.store.network.cut()
        await asyncio.sleep(TIMEOUT_MS / 1000 - 0.1)
        assert stage.has("/e")
        await asyncio.sleep(0.2)
        assert not stage.has("/e")


@on_virtual_time
async def test_write_is_made_unknown_to_its_client_if_only_answers_are_lost() -> None:
    stage = Stage()
    stage.store.network.cut(requests=False)
    assert (await stage.outcome(stage.store.create("/a")), stage.has("/a")) == ("unknown", True)


@on_virtual_time
async def test_abandoned_write_may_arrive_but_not_after_a_reconnect() -> None:
    for under_way_ms, arrives in ((50, True), (60_000, False)):
        stage = Stage(NetworkConditions(request_ms=(under_way_ms, under_way_ms)))
        stage.store.network.cut()
        assert await stage.outcome(stage.store.create("/a")) == "unknown"
        assert not stage.has("/a")
        stage.store.network.conditions = FAULTLESS
        stage.store.network.heal()
        await until(lambda: stage.store.connected)  # noqa: B023
        assert stage.has("/a") == arrives
        await asyncio.sleep(100)
        assert stage.has("/a") == arrives


# --- sessions ------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_session_expired_by_command_ends_at_its_client_at_once() -> None:
    stage = Stage()
    await stage.store.create("/e", ephemeral=True)
    stage.zookeeper.expire(stage.store.session_id)
    assert not stage.has("/e")
    write = stage.outcome(stage.store.create("/a"))
    assert (await write, stage.has("/a")) == ("unknown", False), "nothing is written for a session that is over"
    await until(lambda: stage.events == [SUSPENDED, EXPIRED, CONNECTED])


@on_virtual_time
async def test_killed_clients_session_times_out_and_sent_writes_arrive() -> None:
    stage = Stage(NetworkConditions(request_ms=(30, 30)))
    write = asyncio.ensure_future(stage.outcome(stage.store.multi([Create("/e", ephemeral=True)])))
    await asyncio.sleep(0.01)
    stage.store.kill()
    assert await write == "unknown"
    with pytest.raises(SessionExpiredError):
        await stage.store.exists("/")
    await asyncio.sleep(TIMEOUT_MS / 1000 - 0.1)
    assert stage.has("/e")
    await asyncio.sleep(0.2)
    assert not stage.has("/e")
    assert stage.events == []


@on_virtual_time
async def test_closed_session_removes_its_ephemerals_at_once_if_reachable() -> None:
    stage = Stage()
    for cut in (False, True):
        store = stage.zookeeper.connect()
        await store.create("/e", ephemeral=True)
        if cut:
            store.network.refuse()
        await store.close()
        assert stage.has("/e") == cut
    await asyncio.sleep(TIMEOUT_MS / 1000)
    assert not stage.has("/e")


# --- servers -------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_servers_that_are_killed_and_started_again_have_forgotten_nothing() -> None:
    stage = Stage()
    await stage.store.create("/e", b"x", ephemeral=True)
    session_id = stage.store.session_id
    stage.zookeeper.stop()
    await asyncio.sleep(5 * TIMEOUT_MS / 1000)
    assert stage.events == [SUSPENDED]
    with pytest.raises(OutcomeUnknownError):
        await stage.store.get("/e")
    stage.zookeeper.start()
    await until(lambda: stage.events == [SUSPENDED, CONNECTED])
    await asyncio.sleep(2 * TIMEOUT_MS / 1000)
    assert ((await stage.store.get("/e")).data, stage.store.session_id) == (b"x", session_id)


@on_virtual_time
async def test_client_absent_after_an_outage_loses_its_session_by_timeout() -> None:
    stage = Stage()
    await stage.store.create("/e", ephemeral=True)
    stage.zookeeper.stop()
    stage.store.network.cut()
    await asyncio.sleep(5 * TIMEOUT_MS / 1000)
    stage.zookeeper.start()
    await asyncio.sleep(TIMEOUT_MS / 1000 - 0.1)
    assert stage.has("/e")
    await asyncio.sleep(0.2)
    assert not stage.has("/e")


@pytest.mark.parametrize(("hung_s", "ends"), [(1.5, False), (5, False), (13, True)])
def test_servers_that_hang_for_long_end_all_sessions_when_they_go_on(hung_s: float, ends: bool) -> None:
    @on_virtual_time
    async def scenario() -> None:
        stage = Stage()
        await stage.store.create("/e", ephemeral=True)
        stage.zookeeper.freeze()
        await asyncio.sleep(hung_s)
        assert stage.has("/e")
        stage.zookeeper.thaw()
        assert stage.has("/e") != ends
        await until(lambda: stage.store.connected and stage.other.connected)
        await asyncio.sleep(TIMEOUT_MS / 500)
        assert (EXPIRED in stage.events) == ends
        assert stage.has("/e") != ends

    scenario()


@on_virtual_time
async def test_a_server_that_is_behind_shows_the_past_until_it_is_asked_to_sync() -> None:
    stage = Stage(NetworkConditions(lag_ms=(100, 100)), servers=3, seed=2)
    stores = [stage.zookeeper.connect() for _ in range(6)]
    await stage.other.create("/a", b"old")
    await asyncio.gather(*(store.sync("/") for store in stores))
    await stage.other.set("/a", b"new")
    seen = [(await store.get("/a")).data for store in stores]
    assert set(seen) == {b"old", b"new"}
    await asyncio.gather(*(store.sync("/") for store in stores))
    assert {(await store.get("/a")).data for store in stores} == {b"new"}


@on_virtual_time
async def test_client_never_reads_older_data_than_it_has_written_or_seen() -> None:
    stage = Stage(NetworkConditions(lag_ms=(50, 300)), servers=3)
    stores = [stage.zookeeper.connect() for _ in range(6)]
    for number, store in enumerate(stores * 3):
        await store.create(f"/{number}")
        assert f"{number}" in await store.children("/")
        store.network.drop()
        await until(lambda: store.connected)  # noqa: B023
        assert f"{number}" in await store.children("/")


@on_virtual_time
async def test_client_without_a_connection_fails_in_time_and_connects_later() -> None:
    zookeeper = MemoryZooKeeper(VirtualClock(), TIMEOUT_MS)
    network = zookeeper.client_network()
    network.cut()
    begun_ms = now_ms()
    with pytest.raises(UnreachableError):
        await zookeeper.open(network, session_timeout_ms=TIMEOUT_MS, connect_timeout_ms=2000)
    assert now_ms() - begun_ms == 2000
    opening = asyncio.ensure_future(zookeeper.open(network, session_timeout_ms=TIMEOUT_MS))
    await asyncio.sleep(1)
    network.heal()
    store: MemoryStore = await opening
    assert store.session_id and await store.children("/") == []


# --- all of it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 3])
def test_equal_seeds_give_equal_runs(servers: int) -> None:
    runs = []

    @on_virtual_time
    async def scenario() -> None:
        conditions = NetworkConditions((1, 9), (1, 9), (1, 400), (20, 500), (1, 50), breaks=0.05)
        stage = Stage(conditions, seed=5, servers=servers)
        rng = Random(3)
        seen: list[object] = []
        for number in range(400):
            await asyncio.sleep(rng.uniform(0, 0.2))
            if number % 40 == 20:
                stage.store.network.cut(requests=rng.random() < 0.5)
            if number % 40 == 39:
                stage.store.network.heal()
            seen.append(await stage.outcome(stage.store.create("/n_", sequence=True)))
            await stage.outcome(stage.store.children("/", watch=True))
        stage.store.network.heal()
        await until(lambda: stage.store.connected)
        runs.append((seen, stage.events, sorted(stage.zookeeper.node("/").children), now_ms()))

    scenario()
    scenario()
    assert runs[0] == runs[1]
    assert runs[0][0].count("done") > 100 and runs[0][0].count("unknown") > 20

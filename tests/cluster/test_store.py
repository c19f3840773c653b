"""The contract of `Store`, for both stores: ZooKeeper and its twin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cluster.zookeeper.kazoo_store import ZooKeeperStore
from cluster.zookeeper.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeChanged,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OutcomeUnknownError,
    SessionChanged,
    SessionState,
    Set,
    Store,
    StoreEvent,
    TransactionFailedError,
    UnreachableError,
)
from tests.cluster.stores import TIMEOUT_MS, Server
from tidelog.clock import SystemClock
from tidelog.errors import ConfigError
from tidelog.local.zookeeper import EmbeddedZooKeeper


class Events:
    """Records the events of a store."""

    def __init__(self, store: Store) -> None:
        self.seen: list[StoreEvent] = []
        self._news = asyncio.Event()
        store.subscribe(self._on_event)

    def _on_event(self, event: StoreEvent) -> None:
        self.seen.append(event)
        self._news.set()

    async def until(self, event: StoreEvent) -> None:
        async with asyncio.timeout(10):
            while event not in self.seen:
                self._news.clear()
                await self._news.wait()


async def until_later_than(clock: SystemClock, ms: int) -> None:
    await eventually(lambda: asyncio.sleep(0, clock.monotonic_ms() > ms))


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_node_is_read_as_it_was_written_and_counts_its_versions(server: Server) -> None:
    store = await server.connect()
    path, made = await store.create("/a", b"one")
    assert (path, made.version, made.owner) == ("/a", 0, 0)
    assert await store.set("/a", b"two", 0) == 1
    assert await store.set("/a", b"three") == 2
    node = await store.get("/a")
    assert (node.data, node.stat.version, node.stat.czxid) == (b"three", 2, made.czxid)
    assert await store.exists("/a") == node.stat
    assert await store.exists("/b") is None
    await store.close()


async def test_a_refused_write_changes_nothing(server: Server) -> None:
    store = await server.connect()
    await store.create("/a", b"one")
    await store.create("/a/b")
    with pytest.raises(NodeExistsError):
        await store.create("/a", b"two")
    with pytest.raises(BadVersionError):
        await store.set("/a", b"two", 7)
    with pytest.raises(BadVersionError):
        await store.delete("/a/b", 7)
    with pytest.raises(NotEmptyError):
        await store.delete("/a")
    with pytest.raises(NoNodeError):
        await store.create("/x/y")
    with pytest.raises(NoNodeError):
        await store.set("/x", b"")
    with pytest.raises(NoNodeError):
        await store.get("/x")
    with pytest.raises(NoNodeError):
        await store.children("/x")
    assert (await store.get("/a")).data == b"one"
    assert await store.children("/a") == ["b"]
    await store.close()


async def test_a_later_creation_has_a_greater_czxid(server: Server) -> None:
    store = await server.connect()
    _, first = await store.create("/a")
    await store.delete("/a")
    _, second = await store.create("/a")
    assert second.czxid > first.czxid
    assert second.version == 0
    await store.close()


async def test_sequential_nodes_are_numbered_by_their_parent(server: Server) -> None:
    store = await server.connect()
    await store.create("/q")
    names = [(await store.create("/q/n_", sequence=True))[0] for _ in range(3)]
    assert names == ["/q/n_0000000000", "/q/n_0000000001", "/q/n_0000000002"]
    await store.close()


async def test_every_child_ever_made_is_counted_and_none_that_was_rolled_back(server: Server) -> None:
    store = await server.connect()
    await store.create("/q")
    await store.create("/q/plain")
    assert (await store.create("/q/n_", sequence=True))[0] == "/q/n_0000000001"
    await store.delete("/q/plain")
    with pytest.raises(TransactionFailedError):
        await store.multi([Create("/q/other"), Delete("/q/nothing")])
    assert (await store.create("/q/n_", sequence=True))[0] == "/q/n_0000000002"
    await store.close()


async def test_nodes_created_by_one_multi_have_one_czxid(server: Server) -> None:
    store = await server.connect()
    await store.multi([Create("/a"), Create("/a/b"), Create("/c")])
    stats = [await store.exists(path) for path in ("/a", "/a/b", "/c")]
    assert len({stat.czxid for stat in stats if stat is not None}) == 1
    await store.close()


async def test_an_ephemeral_node_has_no_children(server: Server) -> None:
    store = await server.connect()
    await store.create("/e", ephemeral=True)
    with pytest.raises(OutcomeUnknownError):
        await store.create("/e/child")
    assert await store.children("/e") == []
    await store.close()


async def test_a_multi_happens_whole_or_not_at_all_and_says_what_failed(server: Server) -> None:
    store = await server.connect()
    await store.create("/epoch", b"1")
    await store.create("/gone")
    results = await store.multi([Check("/epoch", 0), Set("/epoch", b"2", 0), Create("/new", b"x"), Delete("/gone", 0)])
    assert results == [None, 1, "/new", None]
    with pytest.raises(TransactionFailedError) as fenced:
        await store.multi([Check("/epoch", 0), Create("/other")])
    assert (fenced.value.index, type(fenced.value.cause)) == (0, BadVersionError)
    with pytest.raises(TransactionFailedError) as taken:
        await store.multi([Check("/epoch", 1), Create("/other"), Create("/new"), Delete("/epoch")])
    assert (taken.value.index, type(taken.value.cause)) == (2, NodeExistsError)
    with pytest.raises(TransactionFailedError) as missing:
        await store.multi([Set("/epoch", b"3", 1), Set("/nothing", b"")])
    assert (missing.value.index, type(missing.value.cause)) == (1, NoNodeError)
    assert await store.exists("/other") is None
    assert (await store.get("/epoch")).data == b"2"
    await store.close()


async def test_a_watch_fires_once_for_the_next_change(server: Server) -> None:
    store, other = await server.connect(), await server.connect()
    events = Events(store)
    await store.create("/a", b"")
    await store.get("/a", watch=True)
    await store.exists("/b", watch=True)
    await store.children("/", watch=True)
    await other.set("/a", b"x")
    await events.until(NodeChanged("/a"))
    await other.set("/a", b"y")
    await other.create("/b")
    await events.until(NodeChanged("/b"))
    await events.until(NodeChanged("/"))
    await other.create("/c")
    await store.get("/c")
    assert sorted(event.path for event in events.seen if isinstance(event, NodeChanged)) == ["/", "/a", "/b"]
    await store.close()
    await other.close()


async def test_a_watch_set_twice_fires_once(server: Server) -> None:
    store = await server.connect()
    events = Events(store)
    await store.create("/a")
    await store.exists("/a", watch=True)
    await store.exists("/a", watch=True)
    await store.set("/a", b"x")
    await events.until(NodeChanged("/a"))
    await store.get("/a")
    assert events.seen == [NodeChanged("/a")]
    await store.close()


async def test_deletion_fires_each_watch_on_the_node_and_on_its_children(server: Server) -> None:
    store = await server.connect()
    events = Events(store)
    await store.create("/a")
    await store.get("/a", watch=True)
    await store.children("/a", watch=True)
    await store.children("/", watch=True)
    await store.delete("/a")
    await events.until(NodeChanged("/"))
    assert sorted(event.path for event in events.seen if isinstance(event, NodeChanged)) == ["/", "/a", "/a"]
    await store.close()


async def test_a_refused_multi_fires_no_watch(server: Server) -> None:
    store = await server.connect()
    events = Events(store)
    await store.create("/a")
    await store.get("/a", watch=True)
    with pytest.raises(TransactionFailedError):
        await store.multi([Set("/a", b"x"), Delete("/nothing")])
    await store.create("/last")
    await store.exists("/last", watch=True)
    await store.delete("/last")
    await events.until(NodeChanged("/last"))
    assert NodeChanged("/a") not in events.seen
    await store.close()


async def test_ephemerals_go_with_the_session_that_made_them(server: Server) -> None:
    store, other = await server.connect(), await server.connect()
    events = Events(other)
    _, stat = await store.create("/e", ephemeral=True)
    await store.multi([Create("/f", ephemeral=True)])
    assert stat.owner == store.session_id != other.session_id
    await other.exists("/e", watch=True)
    await store.close()
    await events.until(NodeChanged("/e"))
    assert await other.children("/") in ([], ["zookeeper"])
    await other.close()


async def test_an_expired_session_is_announced_and_followed_by_another(server: Server) -> None:
    store, other = await server.connect(), await server.connect()
    events = Events(store)
    await store.create("/e", ephemeral=True)
    first = store.session_id
    await server.expire(store)

    async def gone() -> bool:
        return await other.exists("/e") is None

    await eventually(gone)
    await events.until(SessionChanged(SessionState.EXPIRED))
    await events.until(SessionChanged(SessionState.CONNECTED))
    assert store.session_id not in (0, first)
    _, stat = await store.create("/e", ephemeral=True)
    assert stat.owner == store.session_id
    await store.close()
    await other.close()


async def refused(request: Awaitable[object]) -> None:
    """The server refuses the request."""
    with pytest.raises((NoNodeError, TransactionFailedError)):
        await request


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.sync("/"),
        lambda store: store.create("/a"),
        lambda store: store.set("/there", b""),
        lambda store: store.delete("/there"),
        lambda store: store.multi([Check("/there", 0)]),
        lambda store: refused(store.set("/nowhere", b"")),
        lambda store: refused(store.multi([Check("/nowhere", 0)])),
    ],
)
async def test_session_is_confirmed_as_of_the_sending_of_an_answered_write(
    server: Server, ask: Callable[[Store], Awaitable[object]]
) -> None:
    store = await server.connect()
    clock = SystemClock()
    await store.create("/there")
    await until_later_than(clock, store.confirmed_at_ms)
    before_ms = clock.monotonic_ms()
    await ask(store)
    after_ms = clock.monotonic_ms()
    assert before_ms <= store.confirmed_at_ms <= after_ms
    assert store.session_timeout_ms == TIMEOUT_MS
    await store.close()


async def test_read_does_not_confirm_the_session(server: Server) -> None:
    store = await server.connect()
    await store.create("/a")
    confirmed_ms = store.confirmed_at_ms
    await until_later_than(SystemClock(), confirmed_ms)
    await store.get("/a")
    await store.exists("/a")
    await store.children("/")
    await refused(store.get("/b"))
    assert store.confirmed_at_ms == confirmed_ms
    await store.close()


async def test_a_timeout_that_zookeeper_does_not_grant_is_refused(zookeeper: EmbeddedZooKeeper) -> None:
    for timeout_ms in (500, 60_000):
        with pytest.raises(ConfigError, match="between 2 and 20"):
            await ZooKeeperStore.open(zookeeper.hosts, session_timeout_ms=timeout_ms, clock=SystemClock())


async def test_unreachable_zookeeper_is_reported_within_the_time_limit() -> None:
    with pytest.raises(UnreachableError, match="no ZooKeeper answers"):
        await ZooKeeperStore.open(
            "127.0.0.1:1", session_timeout_ms=TIMEOUT_MS, clock=SystemClock(), connect_timeout_ms=300
        )


async def test_wait_for_zookeeper_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnreachableError):
        await ZooKeeperStore.open(
            "127.0.0.1:1", session_timeout_ms=TIMEOUT_MS, clock=SystemClock(), connect_timeout_ms=1300
        )
    assert [record.message for record in caplog.records if "waiting" in record.message] == [
        "waiting for ZooKeeper at 127.0.0.1:1"
    ]


async def test_a_chroot_that_is_not_there_is_made_and_said_so(
    zookeeper: EmbeddedZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "cluster.zookeeper.kazoo_store")
    for _ in range(2):
        hosts = f"{zookeeper.hosts}/made/in/depth"
        store = await ZooKeeperStore.open(hosts, session_timeout_ms=TIMEOUT_MS, clock=SystemClock())
        assert await store.children("/") == []
        await store.close()
    assert caplog.messages == [f"ZooKeeper at {zookeeper.hosts} has no chroot /made/in/depth yet, which is now created"]


async def test_a_thousand_transactions_are_pipelined(server: Server) -> None:
    store = await server.connect()
    await store.create("/epoch")
    await store.create("/p")
    await asyncio.gather(*(store.multi([Check("/epoch", 0), Create(f"/p/{number}", b"{}")]) for number in range(1000)))
    assert len(await store.children("/p")) == 1000
    await store.close()

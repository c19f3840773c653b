"""Both stores behind one interface, for tests that must hold on either."""

from __future__ import annotations

import asyncio
import itertools
from typing import Protocol

from kazoo.client import KazooClient

from cluster.zookeeper.in_memory import MemoryStore, MemoryZooKeeper
from cluster.zookeeper.kazoo_store import ZooKeeperStore
from cluster.zookeeper.store import Store
from tidelog.clock import SystemClock

TIMEOUT_MS = 10_000
_chroots = itertools.count()


class Server(Protocol):
    """A new, empty tree."""

    async def connect(self) -> Store: ...
    async def expire(self, store: Store) -> None: ...


class Twin:
    """The in-memory ZooKeeper."""

    def __init__(self) -> None:
        self.server = MemoryZooKeeper(session_timeout_ms=TIMEOUT_MS)

    async def connect(self) -> MemoryStore:
        return self.server.connect()

    async def expire(self, store: Store) -> None:
        self.server.expire(store.session_id)


class Real:
    """A chroot of its own on a real ZooKeeper."""

    def __init__(self, hosts: str) -> None:
        self.hosts = f"{hosts}/tidelog-{next(_chroots)}"

    async def connect(self) -> ZooKeeperStore:
        return await ZooKeeperStore.open(self.hosts, session_timeout_ms=TIMEOUT_MS, clock=SystemClock())

    async def expire(self, store: Store) -> None:
        """Take the session over with a second client, and close it."""
        assert isinstance(store, ZooKeeperStore)
        thief = KazooClient(hosts=self.hosts, client_id=store._client.client_id)
        await asyncio.to_thread(thief.start)
        await asyncio.to_thread(thief.stop)

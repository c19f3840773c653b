"""Run the clients of chaos in a fake cluster, on virtual time, with histories in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import VirtualClock
from tidelog.history.events import Event
from tidelog.history.operations import Client
from verify.chaos.clients import RunningClient
from verify.chaos.clients.client_context import ClientContext
from verify.chaos.load import LoadTopic
from verify.chaos.payload import id_of

E = TypeVar("E")


class Diary:
    """A history in memory."""

    def __init__(self, header: Client) -> None:
        self.header = header
        self.events: list[Event] = []
        self.closed = False

    def write(self, event: Event) -> None:
        assert not self.closed
        self.events.append(event)

    def close(self) -> None:
        self.closed = True


class World:
    """A fake cluster with these topics, and the histories of its clients by name."""

    def __init__(self, *topics: LoadTopic, brokers: int = 3, timeout_ms: int = 5_000, seed: int = 1) -> None:
        self.cluster = FakeCluster(brokers)
        for topic in topics:
            self.cluster.create(topic.name, topic.partitions)
        self.diaries: dict[str, Diary] = {}
        self.context = ClientContext(
            self.cluster.bootstrap,
            topics,
            self._open,
            rng=random.Random(seed),
            clock=VirtualClock(),
            now_ns=lambda: round(asyncio.get_running_loop().time() * 1e9),
            opener=self.cluster.open,
            timeout_ms=timeout_ms,
        )

    def _open(self, header: Client) -> Diary:
        self.diaries[header.name] = Diary(header)
        return self.diaries[header.name]

    def events(self, kind: type[E]) -> list[E]:
        """Return the events of this kind in all histories."""
        return [event for diary in self.diaries.values() for event in diary.events if isinstance(event, kind)]

    def ids(self, kind: type[Any]) -> list[int]:
        """Return the record ids in all events of this kind."""
        return [each for event in self.events(kind) for each in event.ids]

    def log(self, topic: str, partition: int = 0) -> list[int]:
        """Return the record ids in the partition's log."""
        found = [id_of(value) for value in self.cluster.partitions[topic][partition].values()]
        assert None not in found
        return [each for each in found if each is not None]

    @asynccontextmanager
    async def running(self, *clients: RunningClient) -> AsyncIterator[None]:
        """Run the clients until the block ends."""
        tasks = [asyncio.create_task(client.run()) for client in clients]
        try:
            yield
        finally:
            self.context.stopping.set()
            await asyncio.gather(*tasks)
        assert all(diary.closed for diary in self.diaries.values())

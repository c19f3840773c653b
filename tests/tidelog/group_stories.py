"""Members of a group in the fake cluster, each with a task that polls and notes what it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tests.tidelog.clients import a_consumer
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import until
from tidelog.aio import Consumer
from tidelog.groups.membership.rebalance_listener import ConsumerRebalanceListener
from tidelog.model import TopicPartition

STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")


def parts(*numbers: int, topic: str = "t") -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in numbers}


def committed(cluster: FakeCluster) -> dict[TopicPartition, int]:
    """Return the committed offsets of group "g"."""
    return {tp: each.committed_offset for tp, each in cluster.coordinator.committed["g"].items()}


class Notes(ConsumerRebalanceListener):
    """Records its calls, and then runs a given function."""

    def __init__(self, then: Callable[[str], object] = lambda what: None) -> None:
        self.shown: list[tuple[str, set[TopicPartition]]] = []
        self._then = then

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object:
        return self._note("revoked", revoked)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object:
        return self._note("assigned", assigned)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> object:
        return self._note("lost", lost)

    def _note(self, what: str, partitions: Collection[TopicPartition]) -> object:
        self.shown.append((what, set(partitions)))
        return self._then(what)


class Reading:
    """One member; `seen` has its records in the order in which its polls returned them."""

    def __init__(self, cluster: FakeCluster, *, notes: Notes | None = None, **options: Any) -> None:
        options.setdefault("group_id", "g")
        options.setdefault("session_timeout_ms", 10_000)
        options.setdefault("max_poll_records", 3)
        self.notes = notes or Notes()
        self.seen: list[tuple[TopicPartition, int]] = []
        self.errors: list[Exception] = []
        self.consumer: Consumer = a_consumer(cluster, **options)
        self._task: asyncio.Task[None] | None = None

    def begin(self, topics: Iterable[str] = ("t",), **how: Any) -> Reading:
        self.consumer.subscribe(() if "pattern" in how else topics, listener=self.notes, **how)
        self.poll_on()
        return self

    def poll_on(self) -> None:
        self._task = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            try:
                polled = await self.consumer.poll(500)
            except Exception as error:
                self.errors.append(error)
                await asyncio.sleep(0.05)
                continue
            self.seen += [(tp, record.offset) for tp, records in polled.items() for record in records]
            await asyncio.sleep(0.01)  # the member processes the records

    async def rest(self) -> None:
        """No more polls; what the last one returned is done."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def close(self) -> None:
        await self.rest()
        await self.consumer.close()

    async def die(self) -> None:
        """Drop the member without a LeaveGroup request and without a commit."""
        await self.rest()
        group = self.consumer._group
        assert group is not None
        await group._watch.stop()
        await group._rebalancing.stop()
        await group._member._beating.stop()
        await self.consumer.client.close()

    async def owns(self, *numbers: int, timeout_s: float = 60) -> None:
        await until(lambda: self.consumer.assignment() == parts(*numbers), timeout_s)


async def shared(readings: Iterable[Reading], count: int, topic: str = "t", timeout_s: float = 60) -> None:
    """Every partition is one member's, and all have as many."""
    members = list(readings)

    def even() -> bool:
        owned = [sorted(each.consumer.assignment()) for each in members]
        sizes = list(map(len, owned))
        whole = sorted(tp for each in owned for tp in each) == sorted(parts(*range(count), topic=topic))
        return whole and max(sizes) - min(sizes) <= 1

    await until(even, timeout_s)

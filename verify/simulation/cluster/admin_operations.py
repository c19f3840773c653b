"""What an administrator orders in the midst of a story, and what a client meets that reads a damaged place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from random import Random

from tidelog.aio import Admin, Consumer
from tidelog.client.admin.config_requests import ConfigResource
from tidelog.client.environment import ClientEnvironment
from tidelog.errors import TidelogError
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import TopicPartition
from tidelog.protocol.messages import NewTopic
from tidelog.protocol.partition_messages import ElectionType, NewPartitions
from verify.simulation.cluster.cluster import OFFSETS_TPS, ClientProcess, Cluster

_PATIENCE_MS = 8_000
#: A topic that comes and goes, and that no client of a story knows.
PASSING = "passing"
#: What may change under load, whatever topics promise; a record that is too large is refused in words.
_CHANGES = (
    ("segment.bytes", "1024"),
    ("segment.bytes", "20000"),
    ("segment.ms", "1500"),
    ("max.message.bytes", "2000"),
    ("max.message.bytes", None),
    ("flush.messages", "1"),
)


class Order:
    """Under way, or done; `bit` once it has changed something."""

    def __init__(self) -> None:
        self.bit = False
        self.done = False


class Operator:
    """A process of its own, which nothing hits."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._orders: list[Order] = []

    @property
    def idle(self) -> bool:
        """Every order has come to its end."""
        return all(order.done for order in self._orders)

    def elect(self) -> Order:
        """Each partition's preferred leader."""
        return self._give(self._elect)

    def give_up(self, tps: list[TopicPartition]) -> Order:
        """Whoever reaches farthest leads, whatever is lost by that."""
        return self._give(partial(self._give_up, tps))

    def reassign(self, tp: TopicPartition, count: int) -> Order:
        """As many replicas as that, wherever the dice put them."""
        return self._give(partial(self._reassign, tp, count))

    def move(self, count: int) -> Order:
        """The same of some partition that clients use."""
        return self._give(partial(self._move, count))

    def move_offsets(self, count: int) -> Order:
        """Moves a partition of `__consumer_offsets` to at least three replicas, because brokers refuse fewer."""
        return self._give(lambda: self._reassign(self._client.dice.choice(OFFSETS_TPS), max(3, count)))

    def alter(self) -> Order:
        """A setting of some topic that clients use."""
        return self._give(self._alter)

    def add(self, topic: str) -> Order:
        """One more partition."""
        return self._give(partial(self._add, topic))

    def create(self, replicas: int) -> Order:
        """The topic that comes and goes."""
        return self._give(partial(self._create, replicas))

    def delete(self) -> Order:
        """That topic."""
        return self._give(self._delete)

    def read(self, tp: TopicPartition, begin: int, end: int) -> Order:
        """Bites where not all of these records are to be had."""
        return self._give(partial(self._read, tp, begin, end))

    @cached_property
    def _client(self) -> ClientProcess:
        """Comes after those of the story, which have their numbers."""
        return self._cluster.client()

    def _give(self, work: Callable[[], Awaitable[bool]]) -> Order:
        order = Order()
        self._orders.append(order)

        async def run() -> None:
            try:
                order.bit = await work()
            except TidelogError:
                pass  # what other faults keep from being done has not bitten
            finally:
                order.done = True

        process = self._client.process
        process.call_soon(lambda: process.create_task(run()))
        return order

    async def _elect(self) -> bool:
        async with self._admin() as admin:
            outcomes = await admin.elect_leaders(ElectionType.PREFERRED, timeout_ms=_PATIENCE_MS)
        return None in outcomes.values()

    async def _give_up(self, tps: list[TopicPartition]) -> bool:
        async with self._admin() as admin:
            outcomes = await admin.elect_leaders(ElectionType.UNCLEAN, tps, timeout_ms=_PATIENCE_MS)
        return None in outcomes.values()

    async def _reassign(self, tp: TopicPartition, count: int) -> bool:
        async with self._admin() as admin:
            brokers = sorted((await admin.describe_cluster(_PATIENCE_MS)).brokers)
            (topic,) = await admin.describe_topics([tp.topic], _PATIENCE_MS)
            before = next(list(each.replicas) for each in topic.partitions if each.partition == tp.partition)
            wanted = self._client.dice.sample(brokers, min(count, len(brokers)))
            if len(wanted) < 2 or wanted == before:
                return False
            await admin.alter_partition_reassignments({tp: wanted}, _PATIENCE_MS)
        return True

    async def _move(self, count: int) -> bool:
        async with self._admin() as admin:
            topic = await self._some_topic(admin)
            (described,) = await admin.describe_topics([topic], _PATIENCE_MS)
        partition = self._client.dice.choice(described.partitions).partition
        return await self._reassign(TopicPartition(topic, partition), count)

    async def _alter(self) -> bool:
        key, value = self._client.dice.choice(_CHANGES)
        async with self._admin() as admin:
            topic = ConfigResource.topic(await self._some_topic(admin))
            await admin.alter_configs({topic: {key: value}}, _PATIENCE_MS)
        return True

    async def _some_topic(self, admin: Admin) -> str:
        names = await admin.list_topics(_PATIENCE_MS)
        return self._client.dice.choice([name for name in names if name not in (PASSING, OFFSETS_TOPIC)])

    async def _add(self, topic: str) -> bool:
        async with self._admin() as admin:
            (described,) = await admin.describe_topics([topic], _PATIENCE_MS)
            await admin.create_partitions([NewPartitions(topic, len(described.partitions) + 1)], _PATIENCE_MS)
        return True

    async def _create(self, replicas: int) -> bool:
        async with self._admin() as admin:
            await admin.create_topics([NewTopic(PASSING, 2, replicas)], _PATIENCE_MS)
        return True

    async def _delete(self) -> bool:
        async with self._admin() as admin:
            await admin.delete_topics([PASSING], _PATIENCE_MS)
        return True

    async def _read(self, tp: TopicPartition, begin: int, end: int) -> bool:
        async with self._environment().create(
            Consumer,
            self._cluster.bootstrap,
            client_id="damaged",
            auto_offset_reset="none",
            default_api_timeout_ms=_PATIENCE_MS,
        ) as consumer:
            consumer.assign([tp])
            consumer.seek(tp, begin)
            try:
                async with asyncio.timeout(_PATIENCE_MS / 1000):
                    while await consumer.position(tp) < end:
                        await consumer.poll(500)
            except (TidelogError, TimeoutError):
                return True
        return False

    def _admin(self) -> Admin:
        return self._environment().create(
            Admin, self._cluster.bootstrap, client_id="operator", default_api_timeout_ms=_PATIENCE_MS
        )

    def _environment(self) -> ClientEnvironment:
        client = self._client
        return ClientEnvironment(clock=client.clock, opener=client.open, rng=Random(client.dice.random()))

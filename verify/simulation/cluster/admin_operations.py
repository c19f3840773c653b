"""Perform the administrator's operations of a scenario, and read records of a damaged segment as a client."""

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

_TIMEOUT_MS = 8_000
#: A topic that scenarios create and delete. No client of a scenario uses it.
TEMPORARY_TOPIC = "passing"
#: Config changes that are allowed under load with every guarantee of topics. A record that is too large gets a clear
#: error.
_CHANGES = (
    ("segment.bytes", "1024"),
    ("segment.bytes", "20000"),
    ("segment.ms", "1500"),
    ("max.message.bytes", "2000"),
    ("max.message.bytes", None),
    ("flush.messages", "1"),
)


class AdminOperation:
    """An operation that is running or done.

    bit    True once it has had an effect
    done   True once it has ended, with or without an effect
    """

    def __init__(self) -> None:
        self.bit = False
        self.done = False


class AdminOperations:
    """The administrator: a process of its own that no fault hits.

    Each method starts an operation and returns at once. An operation that ends with a TidelogError has no effect.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._operations: list[AdminOperation] = []

    @property
    def idle(self) -> bool:
        """Return whether every operation has ended; True before the first."""
        return all(operation.done for operation in self._operations)

    def elect(self) -> AdminOperation:
        """Start to elect the preferred leader of each partition. One new leader is an effect."""
        return self._submit(self._elect)

    def give_up(self, tps: list[TopicPartition]) -> AdminOperation:
        """Start unclean elections for these partitions. Records may be lost.

        The replica whose log reaches farthest leads each partition that has no leader.
        """
        return self._submit(partial(self._give_up, tps))

    def reassign(self, tp: TopicPartition, count: int) -> AdminOperation:
        """Start to reassign the partition to `count` random brokers. No effect if they are fewer than two, or the
        present replicas in the same order.
        """
        return self._submit(partial(self._reassign, tp, count))

    def move(self, count: int) -> AdminOperation:
        """Start to reassign a random partition that clients use, as `reassign` does."""
        return self._submit(partial(self._move, count))

    def move_offsets(self, count: int) -> AdminOperation:
        """Start to reassign a random partition of `__consumer_offsets` to `count` random brokers, but at least three.

        Brokers refuse fewer.
        """
        return self._submit(lambda: self._reassign(self._client.rng.choice(OFFSETS_TPS), max(3, count)))

    def move_dir(self, broker_id: int) -> AdminOperation:
        """Start to move a random replica of the broker to its other log directory. The start of a move is an effect."""
        return self._submit(partial(self._move_dir, broker_id))

    def alter(self) -> AdminOperation:
        """Start to change a random config of a random topic that clients use."""
        return self._submit(self._alter)

    def add(self, topic: str) -> AdminOperation:
        """Start to add a partition to the topic."""
        return self._submit(partial(self._add, topic))

    def create(self, replicas: int) -> AdminOperation:
        """Start to create the temporary topic, with two partitions of that many replicas."""
        return self._submit(partial(self._create, replicas))

    def delete(self) -> AdminOperation:
        """Start to delete the temporary topic."""
        return self._submit(self._delete)

    def read(self, tp: TopicPartition, begin: int, end: int) -> AdminOperation:
        """Start to read the records from offset `begin` to before `end`. An effect is an error, or a timeout."""
        return self._submit(partial(self._read, tp, begin, end))

    @cached_property
    def _client(self) -> ClientProcess:
        """Return the process of the administrator.

        The first use creates it, after the processes of the scenario, so that their numbers do not change.
        """
        return self._cluster.client()

    def _submit(self, work: Callable[[], Awaitable[bool]]) -> AdminOperation:
        operation = AdminOperation()
        self._operations.append(operation)

        async def run() -> None:
            try:
                operation.bit = await work()
            except TidelogError:
                pass  # an operation that other faults prevent has no effect
            finally:
                operation.done = True

        process = self._client.process
        process.call_soon(lambda: process.create_task(run()))
        return operation

    async def _elect(self) -> bool:
        async with self._admin() as admin:
            outcomes = await admin.elect_leaders(ElectionType.PREFERRED, timeout_ms=_TIMEOUT_MS)
        return None in outcomes.values()

    async def _give_up(self, tps: list[TopicPartition]) -> bool:
        async with self._admin() as admin:
            outcomes = await admin.elect_leaders(ElectionType.UNCLEAN, tps, timeout_ms=_TIMEOUT_MS)
        return None in outcomes.values()

    async def _reassign(self, tp: TopicPartition, count: int) -> bool:
        async with self._admin() as admin:
            brokers = sorted((await admin.describe_cluster(_TIMEOUT_MS)).brokers)
            (topic,) = await admin.describe_topics([tp.topic], _TIMEOUT_MS)
            before = next(list(each.replicas) for each in topic.partitions if each.partition == tp.partition)
            wanted = self._client.rng.sample(brokers, min(count, len(brokers)))
            if len(wanted) < 2 or wanted == before:
                return False
            await admin.alter_partition_reassignments({tp: wanted}, _TIMEOUT_MS)
        return True

    async def _move(self, count: int) -> bool:
        async with self._admin() as admin:
            topic = await self._some_topic(admin)
            (described,) = await admin.describe_topics([topic], _TIMEOUT_MS)
        partition = self._client.rng.choice(described.partitions).partition
        return await self._reassign(TopicPartition(topic, partition), count)

    async def _move_dir(self, broker_id: int) -> bool:
        async with self._admin() as admin:
            dirs = (await admin.describe_log_dirs([broker_id], _TIMEOUT_MS))[broker_id]
            logs = [(each, other.path) for log_dir in dirs for each in log_dir.replicas for other in dirs
                    if other.path != log_dir.path and not each.is_future]  # fmt: skip
            if not logs:
                return False
            log, path = self._client.rng.choice(logs)
            await admin.alter_replica_log_dirs(broker_id, {TopicPartition(log.topic, log.partition): path}, _TIMEOUT_MS)
        return True

    async def _alter(self) -> bool:
        key, value = self._client.rng.choice(_CHANGES)
        async with self._admin() as admin:
            topic = ConfigResource.topic(await self._some_topic(admin))
            await admin.alter_configs({topic: {key: value}}, _TIMEOUT_MS)
        return True

    async def _some_topic(self, admin: Admin) -> str:
        names = await admin.list_topics(_TIMEOUT_MS)
        return self._client.rng.choice([name for name in names if name not in (TEMPORARY_TOPIC, OFFSETS_TOPIC)])

    async def _add(self, topic: str) -> bool:
        async with self._admin() as admin:
            (described,) = await admin.describe_topics([topic], _TIMEOUT_MS)
            await admin.create_partitions([NewPartitions(topic, len(described.partitions) + 1)], _TIMEOUT_MS)
        return True

    async def _create(self, replicas: int) -> bool:
        async with self._admin() as admin:
            await admin.create_topics([NewTopic(TEMPORARY_TOPIC, 2, replicas)], _TIMEOUT_MS)
        return True

    async def _delete(self) -> bool:
        async with self._admin() as admin:
            await admin.delete_topics([TEMPORARY_TOPIC], _TIMEOUT_MS)
        return True

    async def _read(self, tp: TopicPartition, begin: int, end: int) -> bool:
        async with self._environment().create(
            Consumer,
            self._cluster.bootstrap,
            client_id="damaged",
            auto_offset_reset="none",
            default_api_timeout_ms=_TIMEOUT_MS,
        ) as consumer:
            consumer.assign([tp])
            consumer.seek(tp, begin)
            try:
                async with asyncio.timeout(_TIMEOUT_MS / 1000):
                    while await consumer.position(tp) < end:
                        await consumer.poll(500)
            except (TidelogError, TimeoutError):
                return True
        return False

    def _admin(self) -> Admin:
        return self._environment().create(
            Admin, self._cluster.bootstrap, client_id="admin_operations", default_api_timeout_ms=_TIMEOUT_MS
        )

    def _environment(self) -> ClientEnvironment:
        client = self._client
        return ClientEnvironment(clock=client.clock, opener=client.open, rng=Random(client.rng.random()))

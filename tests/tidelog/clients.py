"""Create clients of the fake cluster, on virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any, TypeVar

import tidelog
from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tests.virtual_time import VirtualClock
from tidelog.aio import Admin, Consumer, Producer
from tidelog.client.environment import ClientEnvironment
from tidelog.clock import Clock, SystemClock
from tidelog.records.encode import encode_batch

C = TypeVar("C", Admin, Consumer, Producer, tidelog.Admin, tidelog.Consumer, tidelog.Producer)


def in_memory(
    kind: type[C],
    cluster: FakeCluster,
    *topics: str,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    **options: Any,
) -> C:
    """Return a client whose network is the fake cluster; by default with the machine's clock and random numbers."""
    rng = rng or random.Random(next(cluster.client_seeds))
    environment = ClientEnvironment(clock=clock or SystemClock(), opener=cluster.open, rng=rng)
    return environment.create(kind, options.pop("bootstrap_servers", cluster.bootstrap), *topics, **options)


def an_admin(cluster: FakeCluster, **options: Any) -> Admin:
    return in_memory(Admin, cluster, clock=VirtualClock(), **options)


def a_consumer(cluster: FakeCluster, *topics: str, **options: Any) -> Consumer:
    """Return a consumer that reads from the beginning, unless the test sets another start."""
    options.setdefault("auto_offset_reset", "earliest")
    return in_memory(Consumer, cluster, *topics, clock=VirtualClock(), **options)


def a_producer(cluster: FakeCluster, **options: Any) -> Producer:
    return in_memory(Producer, cluster, clock=VirtualClock(), **options)


def seconds() -> float:
    return asyncio.get_running_loop().time()


def put(partition: FakePartition, *values: bytes, at_ms: int = 0) -> None:
    """Append one batch."""
    partition.append(encode_batch([(at_ms, None, value, ()) for value in values]))


async def read(consumer: Consumer, count: int, time_limit_ms: int = 5000) -> list[tuple[int, int, bytes | None]]:
    found: list[tuple[int, int, bytes | None]] = []
    while len(found) < count:
        polled = await consumer.poll(time_limit_ms)
        assert polled, f"only {len(found)} of {count} came"
        found += [(record.partition, record.offset, record.value) for each in polled.values() for record in each]
    return found

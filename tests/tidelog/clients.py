"""Clients of the fake cluster, on virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tests.virtual_time import VirtualClock
from tidelog.aio import Consumer, Producer
from tidelog.records.encode import encode_batch


def a_consumer(cluster: FakeCluster, **options: Any) -> Consumer:
    """From the beginning, unless the test says otherwise."""
    options.setdefault("auto_offset_reset", "earliest")
    bootstrap = options.pop("bootstrap_servers", cluster.bootstrap)
    return Consumer(bootstrap, _clock=VirtualClock(), _opener=cluster.open, _rng=random.Random(7), **options)


def a_producer(cluster: FakeCluster, **options: Any) -> Producer:
    bootstrap = options.pop("bootstrap_servers", cluster.bootstrap)
    rng = options.pop("_rng", random.Random(7))
    return Producer(bootstrap, _clock=VirtualClock(), _opener=cluster.open, _rng=rng, **options)


def seconds() -> float:
    return asyncio.get_running_loop().time()


def put(partition: FakePartition, *values: bytes, at_ms: int = 0) -> None:
    """One batch."""
    partition.append(encode_batch([(at_ms, None, value, ()) for value in values]))


async def read(consumer: Consumer, count: int, patience_ms: int = 5000) -> list[tuple[int, int, bytes | None]]:
    found: list[tuple[int, int, bytes | None]] = []
    while len(found) < count:
        polled = await consumer.poll(patience_ms)
        assert polled, f"only {len(found)} of {count} came"
        found += [(record.partition, record.offset, record.value) for each in polled.values() for record in each]
    return found

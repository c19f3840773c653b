"""Measures how long a new coordinator takes to load a million committed offsets."""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
import time
from collections.abc import Iterator, Sequence

import uvloop

from tidelog import TopicPartition
from tidelog.groups.offsets_topic import OFFSETS_TOPIC, partition_for
from tools.bench.environment import BenchEnvironment, Benchmark, ClusterUnderTest, wait_for
from tools.bench.groups import group_calls
from tools.bench.results import Figure, NotMeasured

OFFSETS, PARTITIONS = 1_000_000, 100
#: All groups belong to one partition of the offsets topic, which has the shipped number of partitions.
GROUPS, OFFSETS_PARTITION, OFFSETS_PARTITIONS = OFFSETS // PARTITIONS, 7, 50
_IN_FLIGHT = 20
_END_MS = 30_000
_LOADED_S = 120

_LOAD = Figure(
    "offsets-load.million", "loading a million committed offsets", "s", "≤ 5", kafka="offsets load:million_s"
)
_FILL = Figure("offsets-load.commits", f"… offsets committed before, {PARTITIONS} a commit", "/s")


def groups() -> Iterator[str]:
    """Return an iterator over the names of GROUPS groups that belong to OFFSETS_PARTITION of the offsets topic."""
    names = (f"load-{number}" for number in itertools.count())
    return itertools.islice(
        (name for name in names if partition_for(name, OFFSETS_PARTITIONS) == OFFSETS_PARTITION), GROUPS
    )


def measure(env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_cluster() as cluster:
        tps = cluster.create_topic(PARTITIONS)
        names = list(groups())
        started = time.perf_counter()
        uvloop.run(_fill(cluster, names, tps))
        rate = OFFSETS / (time.perf_counter() - started)
        cluster.wait_in_sync(OFFSETS_TOPIC)
        leader = cluster.leaders(OFFSETS_TOPIC)[OFFSETS_PARTITION]
        process = cluster.local.broker_process(leader)
        assert process is not None
        process.signal(signal.SIGTERM)
        if not process.wait(_END_MS):
            raise NotMeasured(f"broker {leader} did not end within {_END_MS} ms")
        took = wait_for("the load", lambda: _loaded_in(cluster, {leader}), _LOADED_S)
        uvloop.run(_check(cluster, names, tps))
        return {_LOAD.key: took, _FILL.key: rate}


async def _fill(cluster: ClusterUnderTest, names: Sequence[str], tps: Sequence[TopicPartition]) -> None:
    found = await group_calls.ready(cluster.bootstrap_servers, names[:1])
    left = iter(enumerate(names))
    async with group_calls.connection_to(found[names[0]]) as connection:

        async def commit_some() -> None:
            for number, name in left:
                await group_calls.commit(connection, name, {tp: number + tp.partition for tp in tps})

        await asyncio.gather(*(commit_some() for _ in range(_IN_FLIGHT)))


def _loaded_in(cluster: ClusterUnderTest, gone: set[int]) -> float | None:
    """Return how long the new coordinator loaded, in seconds, as its log line says; None before that line.

    Until then, the coordinator refuses requests about its groups.

    gone   ids of the brokers whose logs are not searched, because they have left
    """
    pattern = re.compile(rf"{OFFSETS_TOPIC}-{OFFSETS_PARTITION}: coordinates {GROUPS:,} groups, loaded in (\d+) ms")
    left = [broker.broker_id for broker in cluster.local.known_state().brokers if broker.broker_id not in gone]
    found = next(filter(None, (pattern.search(cluster.local.log_file(each).read_text()) for each in left)), None)
    return None if found is None else int(found[1]) / 1e3


async def _check(cluster: ClusterUnderTest, names: Sequence[str], tps: Sequence[TopicPartition]) -> None:
    for number in range(0, len(names), len(names) // 10):
        found = await group_calls.committed_with_retries(cluster.bootstrap_servers, names[number], tps, _LOADED_S)
        if found != [number + tp.partition for tp in tps]:
            raise NotMeasured(f"group {names[number]} does not have the offsets that it committed")


BENCHMARK = Benchmark(
    "offsets-load",
    f"{GROUPS:,} groups with {PARTITIONS} offsets each, all in one partition; its leader leaves by SIGTERM, and the "
    "next one logs how long it took; so does Kafka's, whose leader is killed and whose brokers have 1.5 GB of heap",
    (_LOAD, _FILL),
    measure,
)

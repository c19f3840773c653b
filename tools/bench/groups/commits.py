"""Measures offset commits of consumer groups. Each group has one commit in flight, as one consumer has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

import uvloop

from tidelog import TopicPartition
from tidelog.protocol.kafka.client.connection import Connection
from tools.bench.environment import BenchEnvironment, Benchmark, ClusterUnderTest
from tools.bench.groups import group_calls
from tools.bench.profile import profiled
from tools.bench.results import Figure

_WARM_UP_S = 1.0
#: The numbers of groups that commit at once.
GROUPS = (1, 10, 100)

_KAFKA = "group commits"
_RATES = {
    groups: Figure(
        f"offsets-commits.{groups}",
        f"commits of {groups} group{'s' * (groups > 1)}, one partition each",
        "/s",
        kafka=f"{_KAFKA} x{groups}:commits_per_s",
    )
    for groups in GROUPS
}
_P50 = Figure("offsets-commits.p50", "… of one group, p50", "ms", kafka=f"{_KAFKA} x1:p50_ms")
_P99 = Figure("offsets-commits.p99", "… p99", "ms", kafka=f"{_KAFKA} x1:p99_ms")


def measure(env: BenchEnvironment) -> dict[str, float]:
    cluster = env.cluster
    [tp] = cluster.create_topic(1)
    values: dict[str, float] = {}
    for count, figure in _RATES.items():
        groups = [f"{tp.topic}-{count}-{number}" for number in range(count)]
        took = uvloop.run(_commit(cluster, groups, tp, env.seconds))
        values[figure.key] = len(took) / env.seconds
        if count == 1:
            took.sort()
            values |= {_P50.key: took[len(took) // 2] * 1e3, _P99.key: took[len(took) * 99 // 100] * 1e3}
        if env.profile:
            with profiled(f"commits of {count} groups", cluster, env):
                uvloop.run(_commit(cluster, groups, tp, env.seconds))
    return values


async def _commit(cluster: ClusterUnderTest, groups: Sequence[str], tp: TopicPartition, seconds: float) -> list[float]:
    """Let all groups commit for `seconds` after a warm-up. All groups of a coordinator share a connection."""
    found = await group_calls.ready(cluster.bootstrap_servers, groups)
    async with AsyncExitStack() as stack:
        connections = await group_calls.connections_by_group(stack, found)
        await commit_for(connections, tp, _WARM_UP_S)
        return await commit_for(connections, tp, seconds)


async def commit_for(connections: Mapping[str, Connection], tp: TopicPartition, seconds: float) -> list[float]:
    """Let all groups commit for `seconds`, each on its connection, and return the seconds that each commit took.

    Each group has one commit in flight.
    """
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def commit(group: str, connection: Connection) -> None:
        offset, started = 0, time.perf_counter()
        while started < end:
            await group_calls.commit(connection, group, {tp: offset})
            ended = time.perf_counter()
            took.append(ended - started)
            offset, started = offset + 1, ended

    await asyncio.gather(*(commit(group, connection) for group, connection in connections.items()))
    return took


BENCHMARK = Benchmark(
    "offsets-commits",
    "one commit under way for each group, the requests themselves by asyncio on uvloop; Kafka's side: commit() of a "
    "consumer for each group, in threads",
    (*_RATES.values(), _P50, _P99),
    measure,
)

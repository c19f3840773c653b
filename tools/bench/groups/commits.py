"""Measures offset commits of consumer groups. Each group has one commit in flight, as one consumer has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import uvloop

from tidelog import TopicPartition
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
    """Let all groups commit for `seconds` after a warm-up, and return the seconds that each counted commit took.

    Each group has one commit in flight, and all groups of a coordinator share a connection.
    """
    found = await group_calls.ready(cluster.bootstrap_servers, groups)
    took: list[float] = []
    async with AsyncExitStack() as stack:
        connections = {
            address: await stack.enter_async_context(group_calls.connection_to(address))
            for address in set(found.values())
        }
        begin = time.perf_counter() + _WARM_UP_S

        async def commit_for(group: str) -> None:
            offset, started = 0, time.perf_counter()
            while started < begin + seconds:
                await group_calls.commit(connections[found[group]], group, {tp: offset})
                ended = time.perf_counter()
                if started >= begin:
                    took.append(ended - started)
                offset, started = offset + 1, ended

        await asyncio.gather(*map(commit_for, groups))
    return took


BENCHMARK = Benchmark(
    "offsets-commits",
    "one commit under way for each group, the requests themselves by asyncio on uvloop; Kafka's side: commit() of a "
    "consumer for each group, in threads",
    (*_RATES.values(), _P50, _P99),
    measure,
)

"""Measures a rebalance of a large group: from the last member's join until each member has its assignment."""

from __future__ import annotations

from collections.abc import Sequence

import uvloop

from tidelog.model import TopicPartition
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.groups.member import group_of, slowest_rebalance
from tools.bench.results import Figure

MEMBERS, PARTITIONS = 50, 200
_ROUNDS = 3

_TOOK = Figure(
    "offsets-rebalance.last-join",
    f"rebalance of {MEMBERS} members over {PARTITIONS} partitions, after the last join",
    "ms",
    "≤ 1,000",
    kafka="rebalance:after_last_join_ms",
)
_STICKY = Figure("offsets-rebalance.cooperative", "… by cooperative-sticky", "ms", "≤ 1,000")


def measure(env: BenchEnvironment) -> dict[str, float]:
    tps = env.cluster.create_topic(PARTITIONS)
    return {
        figure.key: uvloop.run(_rebalance(env.cluster.bootstrap_servers, tps, assignor)) * 1e3
        for figure, assignor in ((_TOOK, "range"), (_STICKY, "cooperative-sticky"))
    }


async def _rebalance(bootstrap_servers: str, tps: Sequence[TopicPartition], assignor: str) -> float:
    async with group_of(bootstrap_servers, tps, assignor, MEMBERS) as members:
        return await slowest_rebalance(members, tps, _ROUNDS)


BENCHMARK = Benchmark(
    "offsets-rebalance",
    f"{MEMBERS} members, each on a connection of its own, all in one process; the slowest of {_ROUNDS}; Kafka's side: "
    "as many consumers in threads, from the coordinator's log line to the last assignment that a consumer receives",
    (_TOOK, _STICKY),
    measure,
)

"""Measures one group of many members: its rebalance, and the brokers while the members send only heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import cycle

import uvloop

from tidelog import TopicPartition
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.groups.member import Member, group_of, slowest_rebalance
from tools.bench.results import Figure, NotMeasured
from tools.bench.scale.findings import Findings
from tools.bench.scale.idle import cpu_percent

MEMBERS, PARTITIONS = 200, 2_000
#: The client's default `heartbeat.interval.ms`.
_INTERVAL_S = 3.0
_ROUNDS = 3

_IDLE = Figure("scale-group.idle", f"{PARTITIONS:,} partitions without a group: CPU of all brokers", "% of a core")
_RANGE = Figure(
    "scale-group.last-join",
    f"rebalance of {MEMBERS} members over {PARTITIONS:,} partitions, the last join to the last assignment",
    "s",
    "≤ 3",
)
_HEARTBEATS = Figure(
    "scale-group.heartbeats", "… CPU of all brokers for heartbeats, without that of idle brokers", "% of a core", "≤ 3"
)
_STICKY = Figure("scale-group.cooperative", "… the rebalance by cooperative-sticky", "s", "≤ 3")


def measure(env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_cluster() as cluster:
        findings = Findings(env.say)
        tps = cluster.create_topic(PARTITIONS)
        idle = cpu_percent(cluster.broker_pids)
        findings.note(_IDLE, idle)
        uvloop.run(measure_group(cluster.bootstrap_servers, cluster.broker_pids, tps, MEMBERS, idle, findings))
        return findings.values


async def measure_group(
    bootstrap_servers: str,
    pids: Collection[int],
    tps: Sequence[TopicPartition],
    count: int,
    idle_percent: float,
    findings: Findings,
) -> None:
    """Measure a group of `count` members with each assignor. The group of the range assignor also sends heartbeats.

    `idle_percent` is the CPU of the brokers without a group.
    """
    async with group_of(bootstrap_servers, tps, "range", count) as members:
        findings.note(_RANGE, await slowest_rebalance(members, tps, _ROUNDS))
        heartbeats = asyncio.create_task(send_heartbeats(members, _INTERVAL_S))
        try:
            cpu = await asyncio.to_thread(cpu_percent, pids)
            if heartbeats.done():
                raise NotMeasured(f"the heartbeats ended: {heartbeats.exception()}")
        finally:
            heartbeats.cancel()
            await asyncio.wait([heartbeats])
        findings.note(_HEARTBEATS, cpu - idle_percent)
    async with group_of(bootstrap_servers, tps, "cooperative-sticky", count) as members:
        findings.note(_STICKY, await slowest_rebalance(members, tps, _ROUNDS))


async def send_heartbeats(members: Sequence[Member], interval_s: float) -> None:
    """Send a heartbeat of each member in every interval, evenly spread, until this task is cancelled or one fails."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    for member in cycle(members):
        due += interval_s / len(members)
        await asyncio.sleep(due - loop.time())
        await member.heartbeat()


BENCHMARK = Benchmark(
    "scale-group",
    f"{MEMBERS} members, each on a connection of its own, all in one process; the slowest of {_ROUNDS}; heartbeats "
    f"every {_INTERVAL_S:.0f} s",
    (_IDLE, _RANGE, _HEARTBEATS, _STICKY),
    measure,
)

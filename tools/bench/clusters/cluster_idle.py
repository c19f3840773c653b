"""Measures what a thousand idle partitions cost three brokers."""

from __future__ import annotations

import time

from tools.bench import machine
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.results import Figure

PARTITIONS = 1_000
_SETTLE_S = 8.0
_WATCH_S = 15.0

_CPU = Figure("cluster-idle.cpu", f"{PARTITIONS:,} idle partitions: CPU of all brokers", "% of a core", "≤ 2")
_MEMORY = Figure("cluster-idle.memory", "… resident memory of the largest broker", "MB")


def measure(env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_cluster() as cluster:
        cluster.create_topic(PARTITIONS)
        pids = cluster.broker_pids
        time.sleep(_SETTLE_S)
        before, started = machine.cpu_time(pids), time.monotonic()
        time.sleep(_WATCH_S)
        used = machine.cpu_time(pids).since(before).total / (time.monotonic() - started)
        largest = max(map(machine.resident_mb, pids))
    return {_CPU.key: 100 * used, _MEMORY.key: largest}


BENCHMARK = Benchmark(
    "cluster-idle",
    f"three brokers with {PARTITIONS:,} idle partitions; {_WATCH_S:.0f} s",
    (_CPU, _MEMORY),
    measure,
)

"""Measures memory and CPU of three idle brokers."""

from __future__ import annotations

import time

from tools.bench import machine
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.results import Figure

_SETTLE_S = 2.0
_WATCH_S = 3.0

_MEMORY = Figure(
    "idle.memory", "resident memory of an idle broker", "MB", "≤ 60", kafka="idle:rss_mb", same_client=True
)
_CPU = Figure("idle.cpu", "CPU of an idle broker", "% of a core")


def measure(env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_cluster() as cluster:
        pids = cluster.broker_pids
        time.sleep(_SETTLE_S)
        before, started = machine.cpu_time(pids), time.monotonic()
        time.sleep(_WATCH_S)
        used = machine.cpu_time(pids).since(before).total / (time.monotonic() - started)
        largest = max(machine.resident_mb(pid) for pid in pids)
    return {_MEMORY.key: largest, _CPU.key: 100 * used / len(pids)}


BENCHMARK = Benchmark(
    "idle", "a fresh cluster without topics; the largest of its three brokers", (_MEMORY, _CPU), measure
)

"""What a thousand partitions cost three brokers while nothing happens in any of them."""

from __future__ import annotations

import time

from benchmarks import machine
from benchmarks.figures import Benchmark, Figure
from benchmarks.lab import Lab

PARTITIONS = 1_000
_SETTLE_S = 8.0
_WATCH_S = 20.0

_CPU = Figure("cluster-idle.cpu", f"{PARTITIONS:,} idle partitions: CPU of all brokers", "% of a core", "≤ 2")
_MEMORY = Figure("cluster-idle.memory", "… resident memory of the largest broker", "MB")
_EMPTY_CPU = Figure("cluster-idle.empty-cpu", "no partitions: CPU of all brokers", "% of a core")
_EMPTY_MEMORY = Figure("cluster-idle.empty-memory", "… resident memory of the largest broker", "MB", "≤ 60")


def measure(lab: Lab) -> dict[str, float]:
    with lab.fresh_cluster() as cluster:
        pids = cluster.broker_pids
        empty_cpu, empty_memory = _idle(pids)
        cluster.create_topic(PARTITIONS)
        cpu, memory = _idle(pids)
    return {_CPU.key: cpu, _MEMORY.key: memory, _EMPTY_CPU.key: empty_cpu, _EMPTY_MEMORY.key: empty_memory}


def _idle(pids: list[int]) -> tuple[float, float]:
    time.sleep(_SETTLE_S)
    before, started = machine.cpu_time(pids), time.monotonic()
    time.sleep(_WATCH_S)
    used = machine.cpu_time(pids).since(before).total / (time.monotonic() - started)
    return 100 * used, max(map(machine.resident_mb, pids))


BENCHMARK = Benchmark(
    "cluster-idle",
    f"three brokers that nobody asks anything, without partitions and with {PARTITIONS:,}; {_WATCH_S:.0f} s of each",
    (_CPU, _MEMORY, _EMPTY_CPU, _EMPTY_MEMORY),
    measure,
)

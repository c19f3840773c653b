"""Measures the brokers' memory after the load of the other benchmarks."""

from __future__ import annotations

from tools.bench import machine
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.results import Figure, NotMeasured

_LOADED = Figure(
    "memory.loaded", "… of the largest broker after the load", "MB", "≤ 200", kafka="loaded:rss_mb", same_client=True
)


def measure(env: BenchEnvironment) -> dict[str, float]:
    if not env.has_cluster:
        raise NotMeasured("no load ran before: name one too, as in `scripts/bench produce memory`")
    return {_LOADED.key: max(map(machine.resident_mb, env.cluster.broker_pids))}


BENCHMARK = Benchmark(
    "memory",
    "the brokers after those of produce, consume and latency that were selected",
    (_LOADED,),
    measure,
)

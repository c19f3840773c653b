"""The brokers' memory after everything that went through them."""

from __future__ import annotations

from tools.bench import machine
from tools.bench.environment import Lab
from tools.bench.results import Benchmark, Figure, NotMeasured

_LOADED = Figure(
    "memory.loaded", "… of the largest broker after the load", "MB", "≤ 200", kafka="loaded:rss_mb", same_client=True
)


def measure(lab: Lab) -> dict[str, float]:
    if not lab.has_cluster:
        raise NotMeasured("no load ran before it: name one too, as in `scripts/bench produce memory`")
    return {_LOADED.key: max(map(machine.resident_mb, lab.cluster.broker_pids))}


BENCHMARK = Benchmark(
    "memory",
    "the brokers that produce, consume and latency ran on, as far as those were asked for",
    (_LOADED,),
    measure,
)

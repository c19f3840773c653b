"""All benchmarks, in the order in which they run and stand in the table."""

from __future__ import annotations

from benchmarks import (
    cluster_failover,
    cluster_idle,
    cluster_slow,
    codec,
    failover,
    floor,
    idle,
    latency,
    leader_move,
    produce,
    spark_read,
    start_up,
    storage,
)
from benchmarks.figures import Benchmark

BENCHMARKS: list[Benchmark] = [
    start_up.BENCHMARK,
    idle.BENCHMARK,
    floor.BENCHMARK,
    codec.BENCHMARK,
    *storage.BENCHMARKS,
    latency.BENCHMARK,
    *produce.BENCHMARKS,
    spark_read.BENCHMARK,
    leader_move.BENCHMARK,
    failover.BENCHMARK,
    cluster_idle.BENCHMARK,
    cluster_failover.BENCHMARK,
    cluster_slow.BENCHMARK,
]

"""Measures synchronous produces: the time of an acknowledgement by the whole ISR without other load."""

from __future__ import annotations

import os
import time

from tidelog import Producer
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.results import Figure

_WARM_UP = 400
_RECORDS = 2_000

_KAFKA = "sync produce 100B"
_P50 = Figure("latency.p50", "synchronous produce 100 B, p50", "ms", "≤ 0.6", kafka=f"{_KAFKA}:p50_ms")
_P99 = Figure("latency.p99", "… p99", "ms", "≤ 1.5", kafka=f"{_KAFKA}:p99_ms")


def measure(env: BenchEnvironment) -> dict[str, float]:
    cluster = env.cluster
    [tp] = cluster.create_topic(1)
    took: list[float] = []
    with Producer(cluster.bootstrap_servers, client_id="bench") as producer:
        for number in range(_WARM_UP + _RECORDS):
            value = os.urandom(100)
            started = time.perf_counter()
            producer.send(tp.topic, value, partition=tp.partition).get(60)
            if number >= _WARM_UP:
                took.append((time.perf_counter() - started) * 1e3)
    took.sort()
    return {_P50.key: took[len(took) // 2], _P99.key: took[len(took) * 99 // 100]}


BENCHMARK = Benchmark(
    "latency",
    f"send(…).get(), one at a time, {_RECORDS} records after {_WARM_UP} that are not counted",
    (_P50, _P99),
    measure,
)

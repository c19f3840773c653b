"""Measures whether many idle partitions slow down six busy ones, in turns on one cluster.

The rate without idle partitions is measured first and last, so that a machine that becomes slower or faster meanwhile
affects both sides alike. Before each load the kernel writes what earlier steps have left in the page cache. Otherwise
the measured load would compete with the files of the partitions that were just created.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from itertools import pairwise
from statistics import mean

from tidelog import NewTopic
from tools.bench.environment import MIN_IN_SYNC, REPLICAS, BenchEnvironment, Benchmark, ClusterUnderTest
from tools.bench.records.ready_made import BATCH_BYTES, PRODUCERS, BatchLoad
from tools.bench.results import Figure
from tools.bench.scale import idle as idle_brokers
from tools.bench.scale.findings import Findings

BUSY = 6
_SIZE = 1_000
_PATIENCE_S = 600
#: The aim of the ratio by the number of idle partitions, which grows from step to step.
IDLE = {1_000: "≥ 0.95", 10_000: "≥ 0.85"}

_RATE = Figure("scale-busy.rate", f"produce 1 KB to {BUSY} partitions without others", "MB/s")
_RATIOS = {
    idle: Figure(f"scale-busy.beside-{idle}", f"… beside {idle:,} idle partitions, of without", "×", aim)
    for idle, aim in IDLE.items()
}


def measure(env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_cluster() as cluster:
        return measure_beside(cluster, env.seconds, _RATIOS, Findings(env.say))


def measure_beside(
    cluster: ClusterUnderTest, seconds: float, ratios: Mapping[int, Figure], findings: Findings
) -> dict[str, float]:
    """Measure the rate alone, beside each number of idle partitions of `ratios`, and alone again."""
    _produce(cluster, seconds)  # the first load makes brokers and client grow to their size
    alone = [_produce(cluster, seconds)]
    beside: dict[int, float] = {}
    topics: list[str] = []
    for before, idle in pairwise([0, *ratios]):
        topics.append(f"idle-{idle}")
        configs = {"min.insync.replicas": str(MIN_IN_SYNC)}
        new = NewTopic(topics[-1], idle - before, REPLICAS, configs=configs)
        cluster.admin.create_topics([new], timeout_ms=_PATIENCE_S * 1000)
        cluster.wait_in_sync(topics[-1], _PATIENCE_S)
        beside[idle] = _produce(cluster, seconds)
    cluster.admin.delete_topics(topics, timeout_ms=_PATIENCE_S * 1000)
    alone.append(_produce(cluster, seconds))
    findings.note(_RATE, mean(alone))
    for idle, figure in ratios.items():
        findings.note(figure, beside[idle] / mean(alone))
    return findings.values


def _produce(cluster: ClusterUnderTest, seconds: float) -> float:
    """Return the rate of a load in MB/s, to a new topic that is deleted afterwards."""
    time.sleep(idle_brokers.SETTLE_S)
    os.sync()
    load = BatchLoad(cluster, _SIZE, BUSY)
    load.produce(seconds)
    load.check()
    cluster.admin.delete_topics([load.tps[0].topic])
    return load.sent * _SIZE / 1e6 / load.elapsed_s


BENCHMARK = Benchmark(
    "scale-busy",
    f"ready-made {BATCH_BYTES >> 10} KB batches from {PRODUCERS} producers, in turns: without, beside "
    f"{' and '.join(f'{idle:,}' for idle in IDLE)} idle partitions, and without",
    (_RATE, *_RATIOS.values()),
    measure,
)

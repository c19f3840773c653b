"""Measures what a producer and a consumer notice when a leader leaves by SIGTERM while every broker is alive."""

from __future__ import annotations

import signal
import time

from tools.bench.clusters.probe_producer import ProbeProducer, Reader
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.results import Figure, NotMeasured

_PARTITIONS = 3
_PACE_S = 0.002
_AFTER_S = 0.5
_END_MS = 30_000

_PRODUCER = Figure("leader-move.producer", "leader leaves by SIGTERM: longest silence for a producer", "ms", "≤ 200")
_CONSUMER = Figure("leader-move.consumer", "… for a consumer", "ms", "≤ 200")


def measure(env: BenchEnvironment) -> dict[str, float]:
    cluster = env.cluster
    tps = cluster.create_topic(_PARTITIONS)
    topic = tps[0].topic
    leaders = cluster.leaders(topic)
    leader = leaders[0]
    led = [tp for tp in tps if leaders[tp.partition] == leader]
    process = cluster.local.broker_process(leader)
    assert process is not None
    with (
        ProbeProducer(cluster.bootstrap_servers, tps, _PACE_S) as probe,
        Reader(cluster.bootstrap_servers, tps) as reader,
    ):
        started = time.monotonic()
        process.signal(signal.SIGTERM)
        if not process.wait(_END_MS):
            raise NotMeasured(f"broker {leader} did not end within {_END_MS} ms")
        time.sleep(_AFTER_S)
        ended = time.monotonic()
        producer = max(probe.longest_silence(tp, started, ended) for tp in led)
        consumer = max(reader.longest_silence(tp, started, ended) for tp in led)
    cluster.restart(leader)
    cluster.wait_in_sync(topic)
    return {_PRODUCER.key: producer * 1e3, _CONSUMER.key: consumer * 1e3}


BENCHMARK = Benchmark(
    "leader-move",
    f"{_PARTITIONS} partitions, a record to each every {_PACE_S * 1e3:.0f} ms, one consumer; of the partitions led",
    (_PRODUCER, _CONSUMER),
    measure,
)

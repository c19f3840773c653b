"""Measures the time from `send` until a consumer in another process returns the record, one record at a time."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time

from tidelog import Consumer, Producer, TopicPartition
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.results import Figure, NotMeasured
from tools.supervised_process import KILL, supervised

_WARM_UP = 400
_RECORDS = 2_000
_TIMEOUT_MS = 60_000
_SENT = struct.Struct(">d")  # the time of the send by the monotonic clock, which all processes of a machine share

_KAFKA = "end to end 100B"
_P50 = Figure("end-to-end.p50", "produce to consume 100 B, p50", "ms", "≤ 0.8", kafka=f"{_KAFKA}:p50_ms")
_P99 = Figure("end-to-end.p99", "… p99", "ms", "≤ 3", kafka=f"{_KAFKA}:p99_ms")


def measure(env: BenchEnvironment) -> dict[str, float]:
    cluster = env.cluster
    [tp] = cluster.create_topic(1)
    took: list[float] = []
    reader = [sys.executable, "-P", "-m", "tools.bench.records.end_to_end", cluster.bootstrap_servers, tp.topic]
    with (
        Producer(cluster.bootstrap_servers, client_id="bench") as producer,
        supervised(reader, KILL, stdout=subprocess.PIPE, stderr=None) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        for number in range(_WARM_UP + _RECORDS):
            padding = os.urandom(100 - _SENT.size)
            producer.send(tp.topic, _SENT.pack(time.perf_counter()) + padding, partition=tp.partition)
            arrival = process.stdout.readline()
            if not arrival:
                raise NotMeasured(f"the consumer ended after {number} records")
            if number >= _WARM_UP:
                took.append(float(arrival))
    took.sort()
    return {_P50.key: took[len(took) // 2], _P99.key: took[len(took) * 99 // 100]}


def main(bootstrap_servers: str, topic: str) -> None:
    """Print a line when the consumer is ready, then for each record its time from send to poll in milliseconds.

    Return if no record comes for a minute.
    """
    with Consumer(bootstrap_servers=bootstrap_servers, client_id="bench", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.poll()
        print("reading", flush=True)
        while polled := consumer.poll(timeout_ms=_TIMEOUT_MS):
            now = time.perf_counter()
            for record in next(iter(polled.values())):
                print((now - _SENT.unpack_from(record.value or b"")[0]) * 1e3, flush=True)


BENCHMARK = Benchmark(
    "end-to-end",
    f"one at a time, the consumer in another process, {_RECORDS} records after {_WARM_UP} that are not counted",
    (_P50, _P99),
    measure,
)

if __name__ == "__main__":
    main(*sys.argv[1:])

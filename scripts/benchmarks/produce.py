"""The rate of the producer: record by record through the public API, random bytes, acks=all; read back and counted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from benchmarks import floor, machine
from benchmarks.figures import Benchmark, Figure, NotMeasured
from benchmarks.lab import ClusterUnderTest, Lab
from benchmarks.profile import profiled
from tidelog import Consumer, Producer, RecordFuture, TopicPartition

#: Different values, made before the clock starts.
_VALUES = 1 << 12
#: Records between two looks at the clock.
_STRIDE = 1 << 10
_FLUSH_S = 120.0
_READ_BACK_S = 300.0


def benchmark(size: int, partitions: int, aim: str) -> Benchmark:
    """Values of `size` bytes to `partitions` partitions in turn."""
    name = f"produce-{size}B-{partitions}p"
    values = f"{'1 KB' if size == 1000 else f'{size} B'}, {partitions} partition{'s' if partitions > 1 else ''}"
    kafka = f"produce {size}B x{partitions}"
    in_bytes = size >= 1000
    rate = Figure(
        f"{name}.rate",
        f"produce {values}",
        "MB/s" if in_bytes else "records/s",
        aim,
        bound=floor.RATE.key if in_bytes else "",
        kafka=f"{kafka}:{'mb_per_s' if in_bytes else 'records_per_s'}",
    )
    brokers_cpu = Figure(
        f"{name}.brokers-cpu",
        "… CPU of the three brokers",
        "s/GB",
        bound=floor.CPU.key,
        kafka=f"{kafka}:broker_cpu_s_per_gb",
    )
    client_cpu = Figure(f"{name}.client-cpu", "… CPU of the client", "s/GB")
    read_back = Figure(f"{name}.read-back", "… read back record by record by one consumer", "records/s")

    def measure(lab: Lab) -> dict[str, float]:
        load = Load(lab.cluster, size, partitions)
        with profiled(name, load.cluster, lab) if lab.profile else nullcontext():
            load.produce(lab.seconds)
        load.check()
        read_seconds = load.read_back()
        gigabytes = load.sent * size / 1e9
        return {
            rate.key: load.sent * (size / 1e6 if in_bytes else 1) / load.elapsed_s,
            brokers_cpu.key: load.brokers_cpu.total / gigabytes,
            client_cpu.key: load.client_cpu.total / gigabytes,
            read_back.key: load.sent / read_seconds,
        }

    settings = f"one producer with its defaults, {values}, every record's future kept and looked at"
    return Benchmark(name, settings, (rate, brokers_cpu, client_cpu, read_back), measure)


class Load:
    """One producer at full speed, and what it cost. Its clock ends with the last acknowledgement."""

    def __init__(self, cluster: ClusterUnderTest, size: int, partitions: int) -> None:
        self.cluster = cluster
        self.tps = cluster.create_topic(partitions)
        self.sent = 0
        self.elapsed_s = 0.0
        self.brokers_cpu = self.client_cpu = machine.CpuTime(0, 0)
        self._size = size
        self._futures: list[RecordFuture] = []

    def produce(self, seconds: float) -> None:
        """Send for so long, then wait for what is in flight."""
        values = [os.urandom(self._size) for _ in range(_VALUES)]
        with Producer(self.cluster.bootstrap_servers, client_id="bench") as producer:
            for tp in self.tps:  # connections, leaders and the producer's id; these records are counted too
                self._futures.append(producer.send(tp.topic, values[0], partition=tp.partition))
            producer.flush(_FLUSH_S)
            brokers, client = machine.cpu_time(self.cluster.broker_pids), machine.own_cpu_time()
            started = time.perf_counter()
            self._send(producer.send, values, started + seconds)
            producer.flush(_FLUSH_S)
            self.elapsed_s = time.perf_counter() - started
            self.client_cpu = machine.own_cpu_time().since(client)
            self.brokers_cpu = machine.cpu_time(self.cluster.broker_pids).since(brokers)
        self.sent = len(self._futures)

    def _send(self, send: Callable[..., RecordFuture], values: Sequence[bytes], until: float) -> None:
        topic, partitions, keep = self.tps[0].topic, len(self.tps), self._futures.append
        number = 0
        while time.perf_counter() < until:
            for number in range(number, number + _STRIDE):  # noqa: B020
                keep(send(topic, values[number % _VALUES], partition=number % partitions))
            number += 1

    def check(self) -> None:
        """Every single record was acknowledged."""
        failed = sum(not future.succeeded() for future in self._futures)
        self._futures.clear()
        if failed:
            raise NotMeasured(f"{failed} of {self.sent} records were not acknowledged")

    def read_back(self) -> float:
        """Seconds to read every record and count them."""
        found, read_bytes = 0, 0
        started = time.perf_counter()
        with Consumer(self.cluster.bootstrap_servers, client_id="bench", auto_offset_reset="earliest") as consumer:
            consumer.assign(self.tps)
            while found < self.sent and time.perf_counter() - started < _READ_BACK_S:
                for records in consumer.poll(timeout_ms=1000, max_records=10_000).values():
                    found += len(records)
                    read_bytes += sum(len(record.value or b"") for record in records)
            seconds = time.perf_counter() - started
            ends = sum(consumer.end_offsets(self.tps).values())
        if not found == ends == self.sent or read_bytes != self.sent * self._size:
            raise NotMeasured(f"{self.sent} records acknowledged, {ends} in the log, {found} read")
        return seconds


def topic_of(cluster: ClusterUnderTest, rows: int, size: int, partitions: int) -> Sequence[TopicPartition]:
    """A topic filled with so many rows, for who reads."""
    tps = cluster.create_topic(partitions)
    values = [os.urandom(size) for _ in range(_VALUES)]
    with Producer(cluster.bootstrap_servers, client_id="bench") as producer:
        for number in range(rows):
            producer.send(tps[0].topic, values[number % _VALUES], partition=number % partitions)
        producer.flush(_FLUSH_S)
    return tps


BENCHMARKS = [
    benchmark(100, 1, "≥ 100,000"),
    benchmark(100, 6, "≥ 100,000"),
    benchmark(1000, 1, "≥ 40"),
    benchmark(1000, 6, "≥ 40"),
]

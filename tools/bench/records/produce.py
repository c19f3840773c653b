"""Measures produce rates with random bytes and acks=all. All records are read back and counted."""

from __future__ import annotations

from contextlib import nullcontext

from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.profile import profiled
from tools.bench.records.load import Load, RecordLoad, in_words
from tools.bench.records.ready_made import BATCH_BYTES, PRODUCERS, BatchLoad
from tools.bench.results import Figure
from tools.bench.without_cluster import hardware_floor

#: Seconds of broker CPU for each GB of 1 KB records.
_CPU_AIM = "≤ 14"


def benchmark(load_of: type[Load], name: str, how: str, size: int, partitions: int, aim: str) -> Benchmark:
    """Return the benchmark of a load of values of `size` bytes to `partitions` partitions in turn.

    load_of   the kind of load
    name      the beginning of the benchmark's name
    how       the kind of load in words
    aim       the aim of the rate: MB/s from 1000 bytes on, else records/s
    """
    name = f"{name}-{size}B-{partitions}p"
    values = f"{in_words(size)}, {partitions} partition{'s' if partitions > 1 else ''}"
    # Kafka's client cannot send ready-made batches.
    kafka = f"produce {size}B x{partitions}:" if load_of is RecordLoad else ""
    in_bytes = size >= 1000
    rate = Figure(
        f"{name}.rate",
        f"produce {values}, {how}",
        "MB/s" if in_bytes else "records/s",
        aim,
        bound=hardware_floor.RATE.key if in_bytes else "",
        kafka=kafka and kafka + ("mb_per_s" if in_bytes else "records_per_s"),
    )
    brokers_cpu = Figure(
        f"{name}.brokers-cpu",
        f"CPU of the three brokers: {values}, {how}",
        "s/GB",
        _CPU_AIM if in_bytes else "",
        bound=hardware_floor.CPU.key,
        kafka=kafka and kafka + "broker_cpu_s_per_gb",
    )
    client_cpu = Figure(f"{name}.client-cpu", "… CPU of the client", "s/GB")

    def measure(env: BenchEnvironment) -> dict[str, float]:
        load = load_of(env.cluster, size, partitions)
        with profiled(name, load.cluster, env) if env.profile else nullcontext():
            load.produce(env.seconds)
        load.check()
        gigabytes = load.sent * size / 1e9
        return {
            rate.key: load.sent * (size / 1e6 if in_bytes else 1) / load.elapsed_s,
            brokers_cpu.key: load.brokers_cpu.total / gigabytes,
            client_cpu.key: load.client_cpu.total / gigabytes,
        }

    settings = f"{load_of.SETTINGS}, {values}, every future kept and looked at"
    return Benchmark(name, settings, (rate, brokers_cpu, client_cpu), measure)


def _record_by_record(size: int, partitions: int, aim: str) -> Benchmark:
    return benchmark(RecordLoad, "produce", "record by record", size, partitions, aim)


def _ready_made(size: int, partitions: int, aim: str) -> Benchmark:
    how = f"ready-made {BATCH_BYTES >> 10} KB batches from {PRODUCERS} producers"
    return benchmark(BatchLoad, "ready-made", how, size, partitions, aim)


BENCHMARKS = [
    _record_by_record(100, 1, "≥ 100,000"),
    _record_by_record(100, 6, "≥ 100,000"),
    _record_by_record(1000, 1, "≥ 60"),
    _record_by_record(1000, 6, "≥ 60"),
    _ready_made(1000, 1, "≥ 90"),
    _ready_made(1000, 6, "≥ 90"),
]

"""Measures look-ups by time through the cluster, at random targets. Every answer is checked.

The n-th record of a partition has the timestamp of the n-th millisecond, so that every answer is known beforehand.
Batches have 16 KiB, which is Kafka's default. Within the one decoded batch the interpreter steps from record to record.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import uvloop

from tidelog import Consumer, Producer, TopicPartition
from tidelog.aio import Consumer as AsyncConsumer
from tidelog.model import OffsetAndTimestamp
from tidelog.records import BatchBuilder
from tools.bench import machine
from tools.bench.environment import BenchEnvironment, Benchmark, ClusterUnderTest
from tools.bench.groups.ping_pong import ping_pong
from tools.bench.profile import profiled
from tools.bench.records.load import FLUSH_S
from tools.bench.results import Figure, NotMeasured

_VALUE = bytes(100)
_BATCH_BYTES = 16 << 10
#: The size of the batches that our producer makes of records that wait for it.
_LARGE_BATCH_BYTES = 256 << 10
_CHUNK_BYTES = 1 << 20
_FEW, _MANY = 10_000, 10_000_000
#: The timestamp of the first record. All records are younger than the retention time.
T0 = time.time_ns() // 1_000_000 - _MANY
_WARM_UP = 500
_LOOK_UPS = 5_000
#: How many requests are made with so many partitions each.
_REQUESTS = {6: 2_000, 100: 200}

#: Target times by partition, and their answers.
_Targets = Mapping[TopicPartition, int]
_Found = Mapping[TopicPartition, OffsetAndTimestamp | None]


class FilledTopic(NamedTuple):
    """Partitions that hold `records` records each, the n-th (from 0) with the timestamp T0 + n ms."""

    tps: Sequence[TopicPartition]
    records: int

    def targets(self, rng: random.Random) -> dict[TopicPartition, int]:
        return {tp: T0 + rng.randrange(self.records) for tp in self.tps}


class LookUpTimings(NamedTuple):
    """The milliseconds of each of several sequential requests, and the CPU seconds of the client and all brokers."""

    each_ms: list[float]
    client_cpu_s: float
    brokers_cpu_s: float

    def percentile(self, percent: int) -> float:
        return _percentile(self.each_ms, percent)

    @property
    def per_s(self) -> float:
        return len(self.each_ms) / (sum(self.each_ms) / 1e3)


def _percentile(each_ms: list[float], percent: int) -> float:
    return sorted(each_ms)[len(each_ms) * percent // 100]


def fill(cluster: ClusterUnderTest, partitions: int, records: int, batch_bytes: int = _BATCH_BYTES) -> FilledTopic:
    """Create a topic, fill each partition with `records` records in ready-made batches, and wait until all are stored.

    Raises NotMeasured if a batch was not acknowledged.
    """
    tps = cluster.create_topic(partitions)
    with Producer(cluster.bootstrap_servers, client_id="bench") as producer:
        futures = []
        made = 0
        while made < records:
            builder = BatchBuilder(batch_bytes)
            while made < records and builder.try_append(T0 + made, None, _VALUE) is not None:
                made += 1
            batch = builder.build()
            futures += [producer.send_batch(tp.topic, batch, partition=tp.partition) for tp in tps]
        producer.flush(FLUSH_S)
    if not all(future.succeeded() for future in futures):
        raise NotMeasured("not all batches were acknowledged")
    os.sync()  # otherwise the kernel would write gigabytes back during the look-ups, which write nothing
    return FilledTopic(tps, records)


def warm(cluster: ClusterUnderTest, log: FilledTopic) -> None:
    """Read the leaders' files, because some kernels page out idle files and no disk is to be measured."""
    leaders = cluster.leaders(log.tps[0].topic)
    for tp in log.tps:
        for path in (cluster.local.broker_dir(leaders[tp.partition]) / str(tp)).glob("*.log"):
            with path.open("rb", buffering=0) as file:
                while file.read(_CHUNK_BYTES):
                    pass


def look_up_async(cluster: ClusterUnderTest, log: FilledTopic, requests: int) -> LookUpTimings:
    """Make `requests` look-ups at random times by the asyncio client on uvloop, one at a time, after a warm-up.

    Each request looks up a time in every partition. Raises NotMeasured for a wrong answer.
    """
    warm(cluster, log)

    async def measure_all() -> LookUpTimings:
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, client_id="bench") as consumer:
            return await _one_after_the_other(cluster, log, requests, consumer.offsets_for_times)

    return uvloop.run(measure_all())


def look_up_sync(cluster: ClusterUnderTest, log: FilledTopic, requests: int) -> LookUpTimings:
    """Make the look-ups of `look_up_async` by the synchronous consumer."""
    warm(cluster, log)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, client_id="bench") as consumer:

        async def look_up(targets: _Targets) -> _Found:
            return consumer.offsets_for_times(targets)

        return asyncio.run(_one_after_the_other(cluster, log, requests, look_up))


def fetch_beginning(cluster: ClusterUnderTest, log: FilledTopic, requests: int) -> LookUpTimings:
    """Make requests of the same size for the beginning offset, which need no search, as `look_up_async` does.

    The log must have one partition. The difference to a look-up is the cost of the search.
    """
    [tp] = log.tps

    async def measure_all() -> LookUpTimings:
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, client_id="bench") as consumer:

            async def look_up(targets: _Targets) -> _Found:
                beginning = await consumer.beginning_offsets(list(targets))
                return {tp: OffsetAndTimestamp(beginning[tp] + targets[tp] - T0, targets[tp], None)}

            return await _one_after_the_other(cluster, log, requests, look_up)

    return uvloop.run(measure_all())


async def _one_after_the_other(
    cluster: ClusterUnderTest, log: FilledTopic, requests: int, look_up: Callable[[_Targets], Awaitable[_Found]]
) -> LookUpTimings:
    rng = random.Random(log.records)
    requests_targets = [log.targets(rng) for _ in range(_WARM_UP + requests)]
    for targets in requests_targets[:_WARM_UP]:
        await look_up(targets)
    each_ms = []
    client, brokers = machine.own_cpu_time(), machine.cpu_time(cluster.broker_pids)
    for targets in requests_targets[_WARM_UP:]:
        started = time.perf_counter()
        found = await look_up(targets)
        each_ms.append((time.perf_counter() - started) * 1e3)
        _check(targets, found)
    client, brokers = machine.own_cpu_time().since(client), machine.cpu_time(cluster.broker_pids).since(brokers)
    return LookUpTimings(each_ms, client.total, brokers.total)


def _check(targets: _Targets, found: _Found) -> None:
    for tp, target in targets.items():
        answer = found[tp]
        if answer is None or (answer.offset, answer.timestamp) != (target - T0, target):
            raise NotMeasured(f"{tp}: {answer} is no answer to {target}")


# --- figures -------------------------------------------------------------------------------------------------------

_KAFKA = "offsets_for_times"
_PING_P50 = Figure("offsets-times.ping-pong-p50", "bound: a small message there and back, unread, p50", "ms")
_PING_P99 = Figure("offsets-times.ping-pong-p99", "… p99", "ms")

_UNSEARCHED = Figure("offsets-times.unsearched-p50", "bound: the same messages with nothing to search for, p50", "ms")


def _of_one(key: str, what: str, kafka: str = "") -> tuple[Figure, Figure, Figure]:
    """Define the table rows of look-ups by time in one partition: rate, median and 99th percentile.

    key     the part of the rows' keys that names the case
    what    the text of the first row
    kafka   the name of Kafka's measurement; "" if there is none
    """
    return (
        Figure(f"offsets-times.{key}-rate", what, "/s", "≥ 5,000", kafka=kafka and f"{kafka}:lookups_per_s"),
        Figure(f"offsets-times.{key}-p50", "… p50", "ms", "≤ 0.2", _PING_P50.key, kafka and f"{kafka}:p50_ms"),
        Figure(f"offsets-times.{key}-p99", "… p99", "ms", "≤ 0.5", _PING_P99.key, kafka and f"{kafka}:p99_ms"),
    )


_IN_FEW = _of_one("few", f"look-ups by time, one partition of {_FEW:,} records, one in flight")
_IN_MANY = _of_one("many", f"… of {_MANY:,} records", f"{_KAFKA} x1")
_IN_LARGE = _of_one("large", "… of a million records in batches of 256 KiB")
_SYNC = _of_one("sync", f"… of {_MANY:,} records, by the synchronous client")
_CLIENT = Figure("offsets-times.client-cpu", "CPU of a look-up, the client's", "µs")
_BROKER = Figure("offsets-times.broker-cpu", "… the three brokers'", "µs")
_WIDE = {
    6: Figure(
        "offsets-times.six", "look-ups by time, six a request", "/s", "≥ 10,000", kafka=f"{_KAFKA} x6:lookups_per_s"
    ),
    100: Figure("offsets-times.hundred", "… a hundred a request", "/s"),
}


def measure(env: BenchEnvironment) -> dict[str, float]:
    bound = ping_pong(_LOOK_UPS)
    values = {_PING_P50.key: _percentile(bound, 50), _PING_P99.key: _percentile(bound, 99)}
    with env.fresh_cluster() as cluster:
        values |= _values(_IN_FEW, look_up_async(cluster, fill(cluster, 1, _FEW), _LOOK_UPS))
        many = fill(cluster, 1, _MANY)
        values[_UNSEARCHED.key] = fetch_beginning(cluster, many, _LOOK_UPS).percentile(50)
        took = look_up_async(cluster, many, _LOOK_UPS)
        values |= _values(_IN_MANY, took)
        values |= {_CLIENT.key: took.client_cpu_s / _LOOK_UPS * 1e6, _BROKER.key: took.brokers_cpu_s / _LOOK_UPS * 1e6}
        values |= _values(_SYNC, look_up_sync(cluster, many, _LOOK_UPS))
        if env.profile:
            with profiled("look-ups by time", cluster, env):
                look_up_async(cluster, many, 4 * _LOOK_UPS)
        values |= _values(_IN_LARGE, look_up_async(cluster, fill(cluster, 1, 1_000_000, _LARGE_BATCH_BYTES), _LOOK_UPS))
        for partitions, figure in _WIDE.items():
            log = fill(cluster, partitions, _FEW)
            values[figure.key] = partitions * look_up_async(cluster, log, _REQUESTS[partitions]).per_s
        return values


def _values(figures: tuple[Figure, Figure, Figure], took: LookUpTimings) -> dict[str, float]:
    rate, p50, p99 = figures
    return {rate.key: took.per_s, p50.key: took.percentile(50), p99.key: took.percentile(99)}


BENCHMARK = Benchmark(
    "offsets-times",
    f"{_LOOK_UPS:,} random targets after {_WARM_UP} that are not counted, asyncio client on uvloop, 100 B records in "
    "16 KiB batches; Kafka's side: among what its client produced in some seconds, in its batches of up to 256 KB",
    (_PING_P50, _PING_P99, _UNSEARCHED, *_IN_FEW, *_IN_MANY, *_SYNC, _CLIENT, _BROKER, *_IN_LARGE, *_WIDE.values()),
    measure,
)

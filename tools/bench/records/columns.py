"""Compare reads of a topic as Arrow columns with reads record by record, by this consumer and by confluent-kafka."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import tidelog
from tidelog import Consumer, Producer, RecordFuture, TopicPartition
from tidelog.records import BatchBuilder
from tools.bench import machine
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.records.load import FLUSH_S, in_words
from tools.bench.records.ready_made import BATCH_BYTES
from tools.bench.results import Figure, NotMeasured

_PARTITIONS = 6
_HOURS = 24
_HOUR_MS = 3_600_000
_VALUES = 1_000
_POLL_MS = 5_000
#: The number of records of one call, which is usual in programs with confluent-kafka.
_AT_ONCE = 500
#: With its own settings, confluent-kafka does not fetch for a second if 100,000 of its records wait. These settings
#: shorten the pause, and let more bytes wait.
_WITHOUT_PAUSE = {
    "fetch.queue.backoff.ms": 10,
    "fetch.message.max.bytes": 4 << 20,
    "queued.max.messages.kbytes": 256 << 10,
}


class _Topic(NamedTuple):
    """A topic with `rows` records at equal distances over 24 hours from `start_ms` on, the same in each partition."""

    bootstrap_servers: str
    tps: Sequence[TopicPartition]
    rows: int
    start_ms: int


def benchmark(size: int, rows: int, ratio: str, rate: str) -> Benchmark:
    """Return the benchmark for values of `size` bytes, with the aims of the ratio to confluent-kafka and of the scan.

    The readers of columns read `rows` records from the first to the last, and the readers of single records the first
    sixth of them. The bytes alone are read by `poll_batches`, which bounds every reader of Tidelog.
    """
    name = f"columns-{size}B"
    values = in_words(size)
    bare = Figure(f"{name}.bytes", f"{values}: Consumer.poll_batches, undecoded", "records/s")
    records = Figure(f"{name}.records", "… Consumer.poll, record by record", "records/s")
    foreign = Figure(f"{name}.confluent", f"… confluent-kafka with its own settings, consume({_AT_ONCE})", "records/s")
    tuned = Figure(f"{name}.confluent-tuned", "… confluent-kafka without its pauses", "records/s")
    polled = Figure(f"{name}.poll-arrow", "… Consumer.poll_arrow", "records/s")
    scanned = Figure(f"{name}.scan", "… tidelog.scan", "records/s")
    on_a_core = Figure(f"{name}.scan-core", "… tidelog.scan, by its CPU time", "records/s", rate)
    by_record = Figure(f"{name}.record-ratio", "… record by record ÷ confluent-kafka", "times", "≥ 1")
    times = Figure(f"{name}.ratio", "… tidelog.scan ÷ confluent-kafka", "times", ratio)
    hour = Figure(f"{name}.hour", "… time of the whole scan ÷ time of one hour out of 24", "times", "≥ 15")
    of_columns: dict[Figure, Callable[[_Topic], int]] = {bare: _by_batches, polled: _by_poll_arrow}
    of_records: dict[Figure, Callable[[_Topic], int]] = {
        records: _by_record,
        foreign: partial(_by_confluent, settings={}),
        tuned: partial(_by_confluent, settings=_WITHOUT_PAUSE),
    }

    def measure(env: BenchEnvironment) -> dict[str, float]:
        topic = _write(env, size, rows)
        first = topic._replace(rows=topic.rows // 6)
        found = {figure.key: _rate(read, first) for figure, read in of_records.items()}
        found |= {figure.key: _rate(read, topic) for figure, read in of_columns.items()}
        cpu = machine.own_cpu_time()
        whole_s = _seconds(_by_scan, topic, topic.rows)
        cpu_s = machine.own_cpu_time().since(cpu).total
        hour_s = _seconds(_by_scan_of_an_hour, topic, topic.rows // _HOURS)
        return {
            **found,
            scanned.key: topic.rows / whole_s,
            on_a_core.key: topic.rows / cpu_s,
            by_record.key: found[records.key] / found[foreign.key],
            times.key: topic.rows / whole_s / found[foreign.key],
            hour.key: whole_s / hour_s,
        }

    settings = f"{rows:,} records over 24 h, {_PARTITIONS} partitions, batches of {BATCH_BYTES >> 10} KiB"
    return Benchmark(
        name, settings, (bare, records, foreign, tuned, polled, scanned, on_a_core, by_record, times, hour), measure
    )


def _write(env: BenchEnvironment, size: int, rows: int) -> _Topic:
    tps = env.cluster.create_topic(_PARTITIONS)
    each = rows // _PARTITIONS // _HOURS * _HOURS
    start_ms = time.time_ns() // 1_000_000 - (_HOURS + 1) * _HOUR_MS
    values = [os.urandom(size) for _ in range(_VALUES)]
    servers = env.cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers, client_id="bench") as producer:
        for tp in tps:
            futures: list[RecordFuture] = []
            builder = BatchBuilder(BATCH_BYTES)
            for number in range(each):
                timestamp_ms, value = start_ms + number * _HOURS * _HOUR_MS // each, values[number % _VALUES]
                if builder.try_append(timestamp_ms, None, value) is None:
                    futures.append(producer.send_batch(tp.topic, builder.build(), partition=tp.partition))
                    builder = BatchBuilder(BATCH_BYTES)
                    builder.try_append(timestamp_ms, None, value)
            futures.append(producer.send_batch(tp.topic, builder.build(), partition=tp.partition))
            producer.flush(FLUSH_S)
            if not all(future.succeeded() for future in futures):
                raise NotMeasured("not every batch was acknowledged")
    return _Topic(servers, tps, each * _PARTITIONS, start_ms)


def _seconds(read: Callable[[_Topic], int], topic: _Topic, expected: int) -> float:
    """Return how long the read takes, including its connections; NotMeasured if it has another number of records."""
    started = time.perf_counter()
    found = read(topic)
    seconds = time.perf_counter() - started
    if found != expected:
        raise NotMeasured(f"{found} records were read, not {expected}")
    return seconds


def _rate(read: Callable[[_Topic], int], topic: _Topic) -> float:
    """Return the records per second of this read. The last poll may exceed `topic.rows`."""
    started = time.perf_counter()
    found = read(topic)
    seconds = time.perf_counter() - started
    if found < topic.rows:
        raise NotMeasured(f"{found} records were read, not {topic.rows}")
    return found / seconds


def _by_batches(topic: _Topic) -> int:
    with _consumer(topic) as consumer:

        def poll() -> int:
            return sum(
                batches.next_offset - batches.fetch_offset for batches in consumer.poll_batches(_POLL_MS).values()
            )

        return _count(topic.rows, poll)


def _by_record(topic: _Topic) -> int:
    with _consumer(topic) as consumer:
        return _count(topic.rows, lambda: sum(map(len, consumer.poll(_POLL_MS).values())))


def _by_poll_arrow(topic: _Topic) -> int:
    with _consumer(topic) as consumer:
        return _count(topic.rows, lambda: consumer.poll_arrow(_POLL_MS).num_rows)


def _by_scan(topic: _Topic) -> int:
    scan = tidelog.scan(topic.tps[0].topic, bootstrap_servers=topic.bootstrap_servers)
    return sum(batch.num_rows for batch in scan)


def _by_scan_of_an_hour(topic: _Topic) -> int:
    since = topic.start_ms + _HOURS // 2 * _HOUR_MS
    scan = tidelog.scan(topic.tps[0].topic, since, since + _HOUR_MS, bootstrap_servers=topic.bootstrap_servers)
    return sum(batch.num_rows for batch in scan)


def _by_confluent(topic: _Topic, settings: Mapping[str, int]) -> int:
    from confluent_kafka import Consumer as ForeignConsumer
    from confluent_kafka import TopicPartition as ForeignPartition

    own = {"bootstrap.servers": topic.bootstrap_servers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    consumer = ForeignConsumer({**own, **settings})
    left = topic.rows

    def consume() -> int:
        nonlocal left
        # A call for more records than are left would wait until its timeout.
        got = len(consumer.consume(min(_AT_ONCE, left), _POLL_MS / 1000))
        left -= got
        return got

    try:
        consumer.assign([ForeignPartition(*tp, 0) for tp in topic.tps])
        return _count(topic.rows, consume)
    finally:
        consumer.close()


def _consumer(topic: _Topic) -> Consumer:
    consumer = Consumer(bootstrap_servers=topic.bootstrap_servers, client_id="bench", auto_offset_reset="earliest")
    consumer.assign(topic.tps)
    return consumer


def _count(rows: int, poll: Callable[[], int]) -> int:
    """Return the number of records that polls return, until there are `rows` or one returns none."""
    found = 0
    while found < rows and (more := poll()):
        found += more
    return found


BENCHMARKS = [benchmark(100, 12_000_000, "≥ 5", "≥ 3,000,000"), benchmark(1000, 2_000_000, "≥ 3", "")]

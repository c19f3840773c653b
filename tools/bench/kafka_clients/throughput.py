"""Produces at full speed, and reads everything back from the start."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tools.bench.kafka_clients.target import Target
from tools.bench.results import NotMeasured

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_PRODUCER = {
    "acks": "all",
    "linger.ms": 5,
    "batch.size": 256 << 10,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 400_000,
    "queue.buffering.max.kbytes": 256 << 10,
}
#: By default a consumer with 100,000 records in its queue does not fetch for a second, which would bound small records.
_CONSUMER = {
    "fetch.queue.backoff.ms": 10,
    "enable.auto.commit": False,
    "fetch.message.max.bytes": 4 << 20,
    "queued.max.messages.kbytes": 256 << 10,
}
#: A fetch that waits at the end of a mock partition would hold back the next read of it.
_MOCK_CONSUMER = {**_CONSUMER, "fetch.wait.max.ms": 1}
#: A mock partition keeps its last 5 MB, so that it is read many times.
_MOCK_READS = 20
_STRIDE = 2_000
_FLUSH_S = 120
_READ_S = 180.0
_AT_ONCE = 20_000


def measure(target: Target, size: int, partitions: int, seconds: float) -> dict[str, float]:
    """Produce values of `size` bytes for `seconds`, then read and count the whole topic.

    The values are MB/s and CPU seconds of the brokers for each GB, both ways.
    """
    topic = target.create_topic(partitions)
    sent, produced = _produce(target, topic, size, partitions, seconds)
    held, consumed = _consume(target, topic, size, partitions, _CONSUMER, reads=1)
    if held != sent:
        raise NotMeasured(f"{sent} records were acknowledged, the partitions hold {held}")
    target.delete_topic(topic)
    return {**produced, **consumed}


def measure_mock(target: Target, size: int, partitions: int, seconds: float) -> dict[str, float]:
    """Measure the same on a mock cluster, which drops old records: read the rest `_MOCK_READS` times."""
    topic = target.create_topic(partitions)
    _, produced = _produce(target, topic, size, partitions, seconds)
    _, consumed = _consume(target, topic, size, partitions, _MOCK_CONSUMER, _MOCK_READS)
    return {**produced, **consumed}


def _produce(target: Target, topic: str, size: int, partitions: int, seconds: float) -> tuple[int, Mapping[str, float]]:
    """Produce to the partitions in turn, and return the number of records, all of them acknowledged, and the figures.

    The first record of each partition is not part of the figures, because it waits for connections and leaders.
    """
    from confluent_kafka import Producer

    producer = Producer({**target.client, **_PRODUCER})
    acknowledged = 0
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failures.append(str(error))

    value = os.urandom(size)
    for partition in range(partitions):
        producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
    producer.flush(_FLUSH_S)
    sent = 0
    cpu, started = target.cpu_s(), time.perf_counter()
    while time.perf_counter() < started + seconds:
        for number in range(sent, sent + _STRIDE):
            while True:
                try:
                    producer.produce(topic, value, partition=number % partitions, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.01)
        sent += _STRIDE
        producer.poll(0)
    producer.flush(_FLUSH_S)
    elapsed_s, gigabytes = time.perf_counter() - started, sent * size / 1e9
    if acknowledged != sent + partitions:
        reason = f": {failures[0]}" if failures else ""
        raise NotMeasured(f"{acknowledged} of {sent + partitions} records were acknowledged{reason}")
    return acknowledged, {
        "produce_rate": sent * size / 1e6 / elapsed_s,
        "produce_cpu": (target.cpu_s() - cpu) / gigabytes,
    }


def _consume(
    target: Target, topic: str, size: int, partitions: int, settings: Mapping[str, Any], reads: int
) -> tuple[int, Mapping[str, float]]:
    """Read the whole topic `reads` times, and return the number of records that it holds, and the figures."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**target.client, **settings, "group.id": uuid.uuid4().hex})
    try:
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        bounds = [consumer.get_watermark_offsets(tp, timeout=30) for tp in tps]
        total = sum(end - begin for begin, end in bounds)
        places = [TopicPartition(topic, tp.partition, begin) for tp, (begin, _) in zip(tps, bounds, strict=True)]
        elapsed_s = 0.0
        cpu = target.cpu_s()
        for _ in range(reads):
            read, started = 0, time.perf_counter()
            consumer.assign(places)
            while read < total:
                # A call that asks for more records than there are would wait for them in the measured time.
                read += len(consumer.consume(min(_AT_ONCE, total - read), 1.0))
                if time.perf_counter() > started + _READ_S:
                    raise NotMeasured(f"{read} of {total} records were read within {_READ_S:.0f} s")
            elapsed_s += time.perf_counter() - started
            consumer.unassign()
        used = target.cpu_s() - cpu
    finally:
        consumer.close()
    megabytes = reads * total * size / 1e6
    return total, {"consume_rate": megabytes / elapsed_s, "consume_cpu": used / (megabytes / 1e3)}

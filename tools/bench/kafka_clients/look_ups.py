"""Measures look-ups by time at random targets. Each answer is compared with what was written."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Sequence

from tools.bench.kafka_clients.target import Target
from tools.bench.results import NotMeasured

_RECORDS = 100_000
_VALUE_BYTES = 100
_FLUSH_S = 120
_TIMEOUT_S = 30
_PRODUCER = {"acks": "all", "batch.size": 16 << 10, "queue.buffering.max.messages": 1_000_000}
_WARM_UP_S = 0.5


def measure(target: Target, partitions: int, seconds: float, *, filled: bool = True) -> dict[str, float]:
    """Look up a random time in each partition of a topic with every request, one request after the other.

    Returns look-ups per second, each partition of a request being one. `filled` says whether the topic holds records,
    so that answers can be checked. The record at offset n then has the timestamp `first_ms + n`.
    """
    from confluent_kafka import Consumer, TopicPartition

    topic = target.create_topic(partitions)
    first_ms = int(time.time() * 1e3) - _RECORDS
    if filled:
        _fill(target, topic, partitions, first_ms)
    consumer = Consumer({**target.client, "group.id": uuid.uuid4().hex})
    rng = random.Random(partitions)

    def look_up_for(duration_s: float) -> float:
        found, started = 0, time.perf_counter()
        while time.perf_counter() < started + duration_s:
            wanted = [rng.randrange(_RECORDS) for _ in range(partitions)]
            asked = [TopicPartition(topic, number, first_ms + after) for number, after in enumerate(wanted)]
            answers = consumer.offsets_for_times(asked, timeout=_TIMEOUT_S)
            if filled:
                _check(wanted, [(each.partition, each.offset) for each in answers])
            found += partitions
        return found / (time.perf_counter() - started)

    try:
        look_up_for(_WARM_UP_S)
        rate = look_up_for(seconds)
    finally:
        consumer.close()
    target.delete_topic(topic)
    return {"rate": rate}


def _fill(target: Target, topic: str, partitions: int, first_ms: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({**target.client, **_PRODUCER})
    value = os.urandom(_VALUE_BYTES)
    for number in range(_RECORDS):
        for partition in range(partitions):
            producer.produce(topic, value, partition=partition, timestamp=first_ms + number)
        producer.poll(0)
    if producer.flush(_FLUSH_S):
        raise NotMeasured(f"not all records were acknowledged within {_FLUSH_S} s")


def _check(wanted: Sequence[int], found: Sequence[tuple[int, int]]) -> None:
    if sorted(found) != list(enumerate(wanted)):
        raise NotMeasured(f"looked up {list(enumerate(wanted))}, found {sorted(found)}")

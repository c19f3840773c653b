"""Measures synchronous produces, and the time from produce to consume, one record at a time."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from tools.bench.kafka_clients.target import Target
from tools.bench.results import NotMeasured

if TYPE_CHECKING:
    from confluent_kafka import Producer

_WARM_UP = 400
RECORDS = 2_000
_VALUE_BYTES = 100
_TIMEOUT_S = 30.0
_PRODUCER = {"acks": "all", "linger.ms": 0}


def measure_produce(target: Target) -> dict[str, float]:
    """Return p50 and p99 (ms) of `produce`, then `flush`."""
    topic = target.create_topic(1)
    producer = _producer(target)

    def produce() -> None:
        producer.produce(topic, os.urandom(_VALUE_BYTES), partition=0)
        if producer.flush(_TIMEOUT_S):
            raise NotMeasured(f"a record was not acknowledged within {_TIMEOUT_S:.0f} s")

    found = _timed(produce)
    target.delete_topic(topic)
    return found


def measure_end_to_end(target: Target) -> dict[str, float]:
    """Return p50 and p99 (ms) from `produce` until a waiting consumer of the same process has the record."""
    from confluent_kafka import Consumer, TopicPartition

    topic = target.create_topic(1)
    producer = _producer(target)
    consumer = Consumer({**target.client, "group.id": uuid.uuid4().hex, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def there() -> None:
            value = os.urandom(_VALUE_BYTES)
            producer.produce(topic, value, partition=0)
            producer.poll(0)
            message = consumer.poll(_TIMEOUT_S)
            if message is None or message.error() or message.value() != value:
                raise NotMeasured("the consumer did not get the record that was sent")

        found = _timed(there)
    finally:
        consumer.close()
    target.delete_topic(topic)
    return found


def _producer(target: Target) -> Producer:
    from confluent_kafka import Producer

    return Producer({**target.client, **_PRODUCER})


def _timed(act: Callable[[], None]) -> dict[str, float]:
    took = []
    for number in range(_WARM_UP + RECORDS):
        started = time.perf_counter()
        act()
        if number >= _WARM_UP:
            took.append((time.perf_counter() - started) * 1e3)
    took.sort()
    return {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100]}

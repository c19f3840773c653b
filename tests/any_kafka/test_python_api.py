"""Test the calls of our clients that Python's Kafka libraries also have, on any Kafka."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.any_kafka.clusters import AnyCluster
from tidelog import Consumer, Producer
from tidelog.errors import RecordDeserializationError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def to_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_values_are_serialized_consumed_and_committed(cluster: AnyCluster) -> None:
    (tp,) = cluster.create_topic()
    with Producer(cluster.bootstrap_servers, key_serializer=str.encode, value_serializer=to_json) as producer:
        for number in range(20):
            producer.send(tp.topic, {"number": number}, key=f"k{number}")
        producer.flush(30)
        assert producer.bootstrap_connected()
    called: list[Any] = []
    with Consumer(
        tp.topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=tp.topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        key_deserializer=bytes.decode,
        value_deserializer=json.loads,
    ) as consumer:
        records = consumer.consume(20, timeout_ms=60_000)
        assert [(each.key, each.value) for each in records] == [(f"k{n}", {"number": n}) for n in range(20)]
        consumer.commit_async(callback=lambda offsets, error: called.append((offsets[tp].offset, error))).result(30)
        consumer.poll()
        assert called == [(20, None)] and consumer.committed(tp) == 20


def test_record_that_cannot_be_deserialized_is_passed(cluster: AnyCluster) -> None:
    (tp,) = cluster.create_topic()
    with Producer(cluster.bootstrap_servers) as producer:
        for value in (b"1", b"no number", b"3"):
            producer.send(tp.topic, value)
    options: Any = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 30_000, "value_deserializer": int}
    with Consumer(tp.topic, bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
        assert next(consumer).value == 1
        with pytest.raises(RecordDeserializationError) as raised:
            next(consumer)
        consumer.seek(raised.value.topic_partition, raised.value.offset + 1)
        assert next(consumer).value == 3

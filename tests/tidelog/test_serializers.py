"""Test producers that turn values into bytes with the user's functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import tidelog
from tests.tidelog.clients import a_producer, in_memory
from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tests.virtual_time import on_virtual_time
from tidelog.errors import ArgumentTypeError, ConfigError, SerializationError
from tidelog.records import decode_records, encode_batch


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def stored(partition: FakePartition) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for batch in partition.batches for record in decode_records(batch)]


def a_topic() -> tuple[FakeCluster, FakePartition]:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    return cluster, partition


@on_virtual_time
async def test_serializers_make_the_bytes_of_keys_and_values() -> None:
    cluster, partition = a_topic()
    async with a_producer(cluster, key_serializer=str.encode, value_serializer=as_json) as producer:
        await producer.send_and_wait("t", {"n": 1}, key="k")
    assert stored(partition) == [(b"k", b'{"n": 1}')]


def test_synchronous_producer_serializes_keys_and_values() -> None:
    cluster, partition = a_topic()
    with in_memory(tidelog.Producer, cluster, key_serializer=str.encode, value_serializer=as_json) as producer:
        producer.send("t", [1, 2], key="k").get(timeout=10)
    assert stored(partition) == [(b"k", b"[1, 2]")]


def test_none_is_not_serialized_and_stays_a_tombstone() -> None:
    cluster, partition = a_topic()
    with in_memory(tidelog.Producer, cluster, key_serializer=as_json, value_serializer=as_json) as producer:
        producer.send("t", None, key=5).get(timeout=10)
        producer.send("t", 5).get(timeout=10)
    assert stored(partition) == [(b"5", None), (None, b"5")]


def test_partitioner_gets_the_serialized_key() -> None:
    cluster = FakeCluster()
    cluster.create("t", 8)
    with in_memory(tidelog.Producer, cluster) as plain:
        expected = [plain.send("t", b"v", key=b"%d" % number).get(timeout=10).partition for number in range(20)]
    with in_memory(tidelog.Producer, cluster, key_serializer=as_json) as producer:
        assert [producer.send("t", b"v", key=each).get(timeout=10).partition for each in range(20)] == expected


@pytest.mark.parametrize(("field", "arguments"), [("key", {"value": b"v", "key": 5}), ("value", {"value": 5})])
def test_failed_serializer_is_named_and_nothing_is_sent(field: str, arguments: dict[str, Any]) -> None:
    cluster, partition = a_topic()
    options: dict[str, Any] = {f"{field}_serializer": str.encode}
    with in_memory(tidelog.Producer, cluster, **options) as producer:
        with pytest.raises(SerializationError, match=rf"topic 't': {field}_serializer failed for {field}=5") as raised:
            producer.send("t", **arguments)
        assert (raised.value.topic, raised.value.field) == ("t", field)
        assert isinstance(raised.value.__cause__, TypeError)
    assert stored(partition) == []


@pytest.mark.parametrize("result", ["text", 5, None, [b"x"]])
def test_result_of_a_serializer_that_is_not_bytes_is_a_type_error(result: Any) -> None:
    cluster, partition = a_topic()
    with in_memory(tidelog.Producer, cluster, value_serializer=lambda value: result) as producer:
        with pytest.raises(ArgumentTypeError, match="value_serializer must return bytes, not"):
            producer.send("t", "v")
        producer.flush()
    assert stored(partition) == []


@on_virtual_time
async def test_asyncio_send_raises_the_error_of_a_serializer() -> None:
    cluster, _ = a_topic()
    async with a_producer(cluster, value_serializer=str.encode) as producer:
        with pytest.raises(SerializationError, match="value_serializer failed for value=5"):
            await producer.send("t", 5)


@on_virtual_time
async def test_values_and_batches_are_sent_as_they_are() -> None:
    cluster, partition = a_topic()
    async with a_producer(cluster, key_serializer=as_json, value_serializer=as_json) as producer:
        await producer.send_values("t", [b"a"])
        await producer.send_batch("t", encode_batch([(0, b"k", b"b", ())]), partition=0)
        await producer.flush()
    assert stored(partition) == [(None, b"a"), (b"k", b"b")]


@pytest.mark.parametrize("kind", [tidelog.Producer, tidelog.Consumer])
@pytest.mark.parametrize("field", ["key", "value"])
def test_setting_that_is_no_function_is_refused(kind: Callable[..., Any], field: str) -> None:
    name = f"{field}_{'' if kind is tidelog.Producer else 'de'}serializer"
    with pytest.raises(ConfigError, match=f"{name} must be None or a function of one value, not 'json'"):
        kind(bootstrap_servers="a:1", **{name: "json"})

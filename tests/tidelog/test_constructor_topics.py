"""Test consumers that are created with the topics to which they subscribe."""

from __future__ import annotations

from typing import Any

import pytest

import tidelog
from tests.tidelog.clients import a_consumer, in_memory, put, read
from tests.tidelog.fake_cluster import FakeCluster
from tests.tidelog.group_stories import parts
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    IllegalStateError,
    InvalidTopicError,
)
from tidelog.model import TopicPartition

KINDS = [tidelog.Consumer, tidelog.aio.Consumer]


def two_topics() -> FakeCluster:
    cluster = FakeCluster()
    for topic in ("t", "u"):
        for partition in cluster.create(topic, 2):
            put(partition, b"a")
    return cluster


@on_virtual_time
async def test_topics_of_the_constructor_are_subscribed_without_a_group() -> None:
    async with a_consumer(two_topics(), "t", "u") as consumer:
        assert consumer.subscription() == {"t", "u"}
        assert len(await read(consumer, 4)) == 4
        assert consumer.assignment() == parts(0, 1) | parts(0, 1, topic="u")


@on_virtual_time
async def test_topics_of_the_constructor_are_subscribed_in_the_group() -> None:
    cluster = two_topics()
    async with a_consumer(cluster, "t", group_id="g") as consumer:
        assert len(await read(consumer, 2)) == 2
        assert len(cluster.coordinator.groups["g"].members) == 1


@on_virtual_time
async def test_subscription_of_the_constructor_ends_like_any_other() -> None:
    async with a_consumer(two_topics(), "t") as consumer:
        with pytest.raises(IllegalStateError, match="this consumer is subscribed"):
            consumer.assign([TopicPartition("u", 0)])
        consumer.subscribe(["u"])
        assert consumer.subscription() == {"u"}
        await consumer.unsubscribe()
        assert consumer.subscription() == set()
        consumer.assign([TopicPartition("u", 0)])
        assert await read(consumer, 1) == [(0, 0, b"a")]


def test_synchronous_consumer_subscribes_to_its_topics_too() -> None:
    with in_memory(tidelog.Consumer, two_topics(), "t", auto_offset_reset="earliest") as consumer:
        assert consumer.subscription() == {"t"}
        assert {next(consumer).topic, next(consumer).topic} == {"t"}


def test_asyncio_consumer_with_topics_is_created_outside_a_loop() -> None:
    consumer = in_memory(tidelog.aio.Consumer, two_topics(), "t", "u")
    assert "assignment={}" in repr(consumer)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("topics", "error", "message"),
    [
        (("localhost:9092",), ArgumentValueError, "not 'localhost:9092': pass addresses as bootstrap_servers="),
        (("t", "a:1,b:2"), ArgumentValueError, "not 'a:1,b:2': pass addresses as bootstrap_servers="),
        ((["a:1", "b:2"],), ArgumentTypeError, r"not \['a:1', 'b:2'\]: pass addresses as bootstrap_servers="),
        ((None,), ArgumentTypeError, "not None: pass addresses as bootstrap_servers="),
        (({"bootstrap.servers": "a:1"},), ArgumentTypeError, "pass addresses as bootstrap_servers="),
        (("t", "a b"), InvalidTopicError, r"topics\[1\]='a b'"),
    ],
)
def test_wrong_topic_names_the_setting_for_addresses(kind: Any, topics: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        kind(*topics)

"""Consumers that share topics: who gets what, from where, and what becomes of it when members come and go."""

from __future__ import annotations

import asyncio

from tests.tidelog.clients import a_consumer, put
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog.aio import Consumer
from tidelog.model import OffsetAndMetadata, TopicPartition


@on_virtual_time
async def test_a_member_alone_gets_every_partition_and_its_records() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 4):
        put(partition, b"a", b"b")
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.subscribe(["t"])
        assert consumer.subscription() == {"t"} and consumer.assignment() == set()
        found = 0
        while found < 8:
            found += sum(map(len, (await consumer.poll(1000)).values()))
        assert consumer.assignment() == {TopicPartition("t", n) for n in range(4)}
        await consumer.commit()
        assert await consumer.committed([TopicPartition("t", 1)]) == {
            TopicPartition("t", 1): OffsetAndMetadata(2, "", 0)
        }

"""The client's flow against real brokers: what the tests in memory promise, on sockets, files and other processes."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import islice

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer, Producer, TopicPartition
from tidelog.errors import BufferExhaustedError, ClosedError, OffsetOutOfRangeError, TimeoutError

pytestmark = pytest.mark.slow


def test_consumer_pauses_iterates_and_gets_errors_for_invalid_calls(cluster: RunningCluster) -> None:
    first, second = cluster.create_topic("t", partitions=2)
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(50):
            for tp in (first, second):
                producer.send("t", b"%d" % number, partition=tp.partition)
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="none", consumer_timeout_ms=4000
    ) as consumer:
        consumer.assign([first, second])
        consumer.seek(first, 0)
        consumer.seek(second, 0)
        consumer.pause(second)
        assert [(record.partition, record.offset) for record in islice(consumer, 50)] == [(0, n) for n in range(50)]
        assert consumer.poll(500) == {}
        assert consumer.position(second) == 0
        consumer.resume(second)
        seen = [record.offset for record in islice(consumer, 10)]
        assert seen + [record.offset for record in consumer] == list(range(50)), "it ends when nothing more comes"
        consumer.seek(first, 1000)
        with pytest.raises(OffsetOutOfRangeError) as refused:
            consumer.poll(10_000)
        assert (refused.value.topic_partition, refused.value.offset) == (first, 1000)
        assert (refused.value.first, refused.value.end) == (0, 50)


def test_producer_without_leaders_blocks_and_fails_within_its_timeouts(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    dead = "127.0.0.1:9"
    with Producer(
        f"{dead},{cluster.bootstrap_servers}", buffer_memory=1, max_block_ms=300, delivery_timeout_ms=3000
    ) as producer:

        def warm() -> bool:
            with suppress(TimeoutError):  # the timeouts are short for the first connection
                producer.send("t", b"warm", partition=0).get(30)
                return True
            return False

        wait_for("the producer to know the leader", warm)
        for broker_id in list(cluster.broker_ids):
            cluster.kill(broker_id)
        started = time.monotonic()
        stuck = producer.send("t", b"v", partition=0)
        with pytest.raises(BufferExhaustedError):
            producer.send("t", b"w", partition=0)
        with pytest.raises(TimeoutError, match="delivery_timeout_ms"):
            stuck.get(30)
        assert 2.9 < time.monotonic() - started < 10
        last = producer.send("t", b"x", partition=tp.partition)
        started = time.monotonic()
        producer.close(timeout=0.5)
        assert time.monotonic() - started < 6
        with pytest.raises(ClosedError):
            last.get(0)


def test_small_bounds_still_read_everything(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=4)
    with Producer(cluster.bootstrap_servers, batch_size=2000) as producer:
        for number in range(400):
            producer.send("t", b"%d" % number * 100, partition=number % 4)
    bounds = {"prefetch_max_bytes": 5000, "max_partition_fetch_bytes": 1000, "fetch_max_bytes": 3000}
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", max_poll_records=7, **bounds
    ) as consumer:
        consumer.assign(tps)
        counts: dict[TopicPartition, int] = dict.fromkeys(tps, 0)
        while sum(counts.values()) < 400:
            polled = consumer.poll(10_000)
            assert polled and sum(map(len, polled.values())) <= 7
            for tp, records in polled.items():
                assert [record.offset for record in records] == list(range(counts[tp], counts[tp] + len(records)))
                counts[tp] += len(records)

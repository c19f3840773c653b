"""Subscribe, poll, look up by time for the whole assignment, seek, go on from there: as users of Kafka know it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.processes.harness.cluster import RunningCluster
from tidelog import Consumer, Producer, StartReason, TopicPartition

# The group does not wait for more members than it has.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("cluster", [{"group_initial_rebalance_delay_ms": 0}], indirect=True),
]

TOPIC = "topicA"
HOUR_MS = 3_600_000


def four_partitions(cluster: RunningCluster, target_ms: int) -> list[TopicPartition]:
    """Around the target: one with older and younger records, one with younger ones, one with older ones, one empty."""
    tps = cluster.create_topic(TOPIC, partitions=4)
    minutes = {0: [-30, -10, 0, 5], 1: [1, 2], 2: [-20, -5]}
    with Producer(cluster.bootstrap_servers) as producer:
        for partition, each in minutes.items():
            for minute in each:
                at_ms = target_ms + minute * 60_000
                producer.send(TOPIC, b"%d" % minute, partition=partition, timestamp_ms=at_ms).get(30)
    return tps


def assigned(consumer: Consumer, count: int) -> set[TopicPartition]:
    """A first poll may return before the group's rebalance is over: there is nothing assigned then."""
    deadline = time.monotonic() + 60
    while len(consumer.assignment()) < count:
        assert time.monotonic() < deadline, "nothing was assigned"
        consumer.poll(100)
    return consumer.assignment()


def by_offsets_for_times(consumer: Consumer, target_ms: int) -> None:
    query = dict.fromkeys(consumer.assignment(), target_ms)
    result = consumer.offsets_for_times(query)
    assert result.keys() == query.keys()
    ends = consumer.end_offsets([tp for tp, found in result.items() if found is None])
    for tp, found in result.items():
        consumer.seek(tp, ends[tp] if found is None else found.offset)


def by_seek_to_time(consumer: Consumer, target_ms: int) -> None:
    points = consumer.seek_to_time(target_ms)
    reasons = {tp.partition: point.reason for tp, point in points.items()}
    assert reasons == {
        0: StartReason.FOUND,
        1: StartReason.BEFORE_LOG_START,
        2: StartReason.PAST_END,
        3: StartReason.EMPTY,
    }


@pytest.mark.parametrize("look_up_and_seek", [by_offsets_for_times, by_seek_to_time])
def test_subscriber_starts_from_a_point_in_time(
    cluster: RunningCluster, look_up_and_seek: Callable[[Consumer, int], None]
) -> None:
    target_ms = time.time_ns() // 1_000_000 - HOUR_MS
    tps = four_partitions(cluster, target_ms)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([TOPIC])
        assert assigned(consumer, 4) == set(tps)
        look_up_and_seek(consumer, target_ms)
        with Producer(cluster.bootstrap_servers) as producer:
            for tp in tps:
                producer.send(*tp[:1], b"new", partition=tp.partition).get(30)
        seen: dict[int, list[bytes | None]] = {tp.partition: [] for tp in tps}
        deadline = time.monotonic() + 60
        while not all(values[-1:] == [b"new"] for values in seen.values()):
            assert time.monotonic() < deadline, seen
            for tp, records in consumer.poll(1000).items():
                seen[tp.partition] += [record.value for record in records]
        assert seen == {0: [b"0", b"5", b"new"], 1: [b"1", b"2", b"new"], 2: [b"new"], 3: [b"new"]}
    # The group continues after the records that were read from there.
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="none") as consumer:
        consumer.assign(tps)
        assert {tp: consumer.position(tp) for tp in tps} == consumer.end_offsets(tps)

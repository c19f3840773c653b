"""Test records with unusual timestamps."""

from __future__ import annotations

import random

from tidelog.model import TopicPartition
from tidelog.records.decode import decode_records
from tidelog.records.header import iter_headers
from verify.chaos.faults.timestamps import odd_times, reachable_leaders, timeless


def test_odd_timestamps_are_inside_and_outside_the_topic_limits() -> None:
    now_ms = 1_700_000_000_000
    times = odd_times(now_ms, random.Random(1))
    assert any(each > now_ms + 3_600_000 for each in times)
    assert 0 in times
    assert sorted(times) != times, "up and down"
    assert len(set(times)) < len(times), "some are equal"


def test_record_without_a_timestamp_stores_none() -> None:
    batch = timeless(b"1", b"value")
    ((_, header),) = iter_headers(batch)
    assert (header.base_timestamp, header.max_timestamp) == (-1, -1)
    assert [(each.timestamp, each.key, each.value) for each in decode_records(batch)] == [(-1, b"1", b"value")]


def test_partitions_without_a_reachable_leader_get_no_record() -> None:
    led = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
    assert list(reachable_leaders(led, {led[0]: 1, led[1]: 2}, {1: "h:1"})) == [(led[0], "h:1")]

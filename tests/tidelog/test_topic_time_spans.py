"""Test `Admin.describe_times`, which reports each partition's size and time span."""

from __future__ import annotations

import pytest

from tests.tidelog.clients import in_memory, put, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.aio import Admin
from tidelog.client.admin.topic_time_spans import PartitionTimes
from tidelog.errors import InvalidTopicError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from tidelog.records import RecordTime


def an_admin(cluster: FakeCluster) -> Admin:
    return in_memory(Admin, cluster, clock=VirtualClock())


@on_virtual_time
async def test_each_partition_has_its_records_bytes_oldest_and_newest() -> None:
    cluster = FakeCluster()
    filled, trimmed, _, waiting = cluster.create("t", 4)
    for time in (50, 90, 70):
        put(filled, b"v", at_ms=time)
    for time in (1, 2, 3, 3):
        put(trimmed, b"v", at_ms=time)
    trimmed.first_offset = 1
    put(waiting, b"v", at_ms=8)
    waiting.high_watermark = 0
    async with an_admin(cluster) as admin:
        described = await admin.describe_times("t")
    sizes = [sum(map(len, each.batches)) for each in cluster.partitions["t"]]
    of_filled = tuple(RecordTime(offset, time) for offset, time in enumerate((50, 90, 70)))
    of_trimmed = (RecordTime(1, 2), RecordTime(2, 3), RecordTime(3, 3))
    assert described == [
        PartitionTimes(0, 0, 3, sizes[0], RecordTime(1, 90), of_filled),
        PartitionTimes(1, 1, 4, sizes[1], RecordTime(2, 3), of_trimmed),
        PartitionTimes(2, 0, 0, 0),
        PartitionTimes(3, 0, 0, sizes[3]),
    ]
    assert [each.records for each in described] == [3, 3, 0, 0]
    assert [each.oldest for each in described] == [RecordTime(0, 50), RecordTime(1, 2), None, None]


@on_virtual_time
async def test_a_large_partition_is_looked_at_in_a_few_places() -> None:
    cluster = FakeCluster(brokers=1)
    (partition,) = cluster.create("t")
    for number in range(1000):
        put(partition, b"v", at_ms=number)
    async with an_admin(cluster) as admin:
        (described,) = await admin.describe_times("t")
    assert [each.offset for each in described.samples] == [999 * number // 7 for number in range(8)]
    assert all(each.timestamp == each.offset for each in described.samples)


@on_virtual_time
async def test_leaderless_partition_has_its_error_after_a_short_wait() -> None:
    cluster = FakeCluster()
    lost, kept = cluster.create("t", 2)
    put(kept, b"v", at_ms=5)
    lost.leader = -1
    async with an_admin(cluster) as admin:
        started = seconds()
        of_lost, of_kept = await admin.describe_times("t")
        assert seconds() - started < 4
    assert isinstance(of_lost.error, LeaderNotAvailableError) and of_lost.records is None
    assert (of_kept.error, of_kept.records, of_kept.oldest) == (None, 1, RecordTime(0, 5))


@on_virtual_time
async def test_missing_topic_raises() -> None:
    async with an_admin(FakeCluster()) as admin:
        with pytest.raises(UnknownTopicOrPartitionError, match="'nope' does not exist"):
            await admin.describe_times("nope")
        with pytest.raises(InvalidTopicError):
            await admin.describe_times("no/pe")

"""How far behind a group is: counted, and timed by the first record that it has not consumed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tidelog.clients import put
from tests.tidelog.fake_cluster import FakeCluster
from tests.tidelog.group_members import join
from tests.tidelog.test_admin import an_admin
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.client.consumer.offset_lookup import Ends
from tidelog.errors import (
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    UnreadableRecordsError,
)
from tidelog.groups.lag import PartitionLag, Standing, first_unread, lag_of
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.protocol.messages import FetchRequest
from tidelog.records import RecordTime
from tidelog.records.encode import encode_batch
from tidelog.records.header import read_header

TP = TopicPartition("t", 0)
ENDS = Ends(10, 20)


@pytest.mark.parametrize(
    ("committed", "unread", "lag", "lag_ms", "standing"),
    [
        (None, None, None, None, Standing.NOTHING_COMMITTED),
        (15, 15, 5, 400, None),
        (10, 10, 10, 400, None),
        (20, None, 0, 0, None),
        (4, 10, 10, 400, Standing.BELOW_LOG_START),
        (25, None, 0, 0, Standing.PAST_LOG_END),
    ],
)
def test_lag_counts_remaining_records(
    committed: int | None, unread: int | None, lag: int | None, lag_ms: int | None, standing: Standing | None
) -> None:
    assert first_unread(committed, ENDS) == unread
    oldest = None if unread is None else RecordTime(unread, 600)
    shown = lag_of(committed, ENDS, oldest, now_ms=1_000)
    assert (shown.lag, shown.lag_ms, shown.standing) == (lag, lag_ms, standing)
    assert (shown.log_start_offset, shown.log_end_offset) == (10, 20)


def test_future_record_has_no_lag_and_one_without_time_has_unknown_lag() -> None:
    assert lag_of(15, ENDS, RecordTime(15, 5_000), now_ms=1_000).lag_ms == 0
    assert lag_of(15, ENDS, RecordTime(15, -1), now_ms=1_000).lag_ms is None


def test_fully_compacted_range_has_no_lag_in_time() -> None:
    assert lag_of(15, ENDS, None, now_ms=1_000) == PartitionLag(15, 10, 20, 5, 0)


@given(
    times=st.lists(st.integers(0, 1_000), max_size=12),
    gone=st.integers(0, 12),
    committed=st.none() | st.integers(0, 15),
    now_ms=st.integers(0, 2_000),
)
def test_lag_matches_a_model_that_reads_all_records(
    times: list[int], gone: int, committed: int | None, now_ms: int
) -> None:
    gone = min(gone, len(times))
    left = list(enumerate(times))[gone:]
    unread = [] if committed is None else [(offset, at_ms) for offset, at_ms in left if offset >= committed]
    ends = Ends(gone, len(times))
    shown = lag_of(committed, ends, RecordTime(*unread[0]) if unread else None, now_ms)
    assert first_unread(committed, ends) == (unread[0][0] if unread else None)
    assert shown.lag == (None if committed is None else len(unread))
    assert shown.lag_ms == (None if committed is None else max(0, now_ms - unread[0][1]) if unread else 0)


async def committed(cluster: FakeCluster, *offsets: int) -> dict[TopicPartition, PartitionLag]:
    """Return the lags of a group with these committed offsets in the partitions of topic `t`."""
    async with an_admin(cluster) as admin:
        wanted = {TopicPartition("t", number): OffsetAndMetadata(offset) for number, offset in enumerate(offsets)}
        await admin.alter_consumer_group_offsets("g", wanted)
        return await admin.consumer_group_lag("g")


@on_virtual_time
async def test_lag_in_time_is_the_age_of_the_first_unconsumed_record() -> None:
    cluster = FakeCluster()
    now_ms = VirtualClock().now_ms()
    behind, caught_up = cluster.create("t", 2)
    for age_ms in (90_000, 60_000, 30_000):
        put(behind, b"v", at_ms=now_ms - age_ms)
    put(caught_up, b"v", at_ms=now_ms - 90_000)
    lags = await committed(cluster, 1, 1)
    assert (lags[TP].lag, lags[TopicPartition("t", 1)].lag) == (2, 0)
    assert lags[TP].lag_ms == pytest.approx(60_000, abs=100)
    assert lags[TopicPartition("t", 1)].lag_ms == 0
    assert len(cluster.sent(FetchRequest)) == 1, "who is caught up is not read"


@on_virtual_time
async def test_the_middle_of_a_batch_has_its_own_time() -> None:
    cluster = FakeCluster()
    now_ms = VirtualClock().now_ms()
    (partition,) = cluster.create("t")
    partition.append(encode_batch([(now_ms - age_ms, None, b"v", ()) for age_ms in (9_000, 5_000, 7_000)]))
    assert (await committed(cluster, 1))[TP].lag_ms == pytest.approx(5_000, abs=100)


@on_virtual_time
async def test_deleted_records_are_no_lag() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"v"] * 5)
    partition.first_offset = 3
    lag = (await committed(cluster, 1))[TP]
    assert (lag.committed_offset, lag.lag, lag.standing) == (1, 2, Standing.BELOW_LOG_START)


@on_virtual_time
async def test_fully_compacted_batch_is_skipped() -> None:
    cluster = FakeCluster()
    now_ms = VirtualClock().now_ms()
    (partition,) = cluster.create("t")
    for age_ms in (9_000, 8_000, 7_000):
        put(partition, b"a", b"b", at_ms=now_ms - age_ms)
    partition.batches[1] = without_its_last_record(partition.batches[1])
    lag = (await committed(cluster, 3))[TP]
    assert lag.lag == 3 and lag.lag_ms == pytest.approx(7_000, abs=100)


def without_its_last_record(batch: bytes) -> bytes:
    """As compaction leaves it: the batch still ends where it did."""
    header = read_header(batch)
    kept = bytearray(encode_batch([(header.base_timestamp, None, b"a", ())]))
    kept[23:27] = header.last_offset_delta.to_bytes(4, "big")
    with_crc(kept)
    kept[0:8] = header.base_offset.to_bytes(8, "big")
    kept[12:16] = header.partition_leader_epoch.to_bytes(4, "big")
    return bytes(kept)


def with_crc(batch: bytearray) -> None:
    from crc32c import crc32c

    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")


@on_virtual_time
async def test_damaged_batch_hides_the_lag_in_time_but_not_in_records() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"value")
    partition.batches[0] = partition.batches[0][:-1] + b"!"
    lag = (await committed(cluster, 0))[TP]
    assert (lag.lag, lag.lag_ms) == (1, None)
    assert isinstance(lag.error, UnreadableRecordsError) and "t-0: the batch at offset 0" in str(lag.error)


@on_virtual_time
async def test_failed_partitions_do_not_hide_other_lags() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, b"v")
    async with an_admin(cluster) as admin:
        tps = [TP, TopicPartition("t", 1), TopicPartition("gone", 0)]
        await admin.alter_consumer_group_offsets("g", dict.fromkeys(tps, OffsetAndMetadata(0)))
        cluster.kill(2, elect=False)
        lags = await admin.consumer_group_lag("g", timeout_ms=20_000)
    errors = {tp: type(each.error) for tp, each in lags.items()}
    assert lags[TP].lag == 1 and lags[TP].error is None
    assert errors[tps[1]] is LeaderNotAvailableError
    assert errors[tps[2]] is UnknownTopicOrPartitionError
    assert (lags[tps[1]].committed_offset, lags[tps[1]].lag) == (0, None)


@on_virtual_time
async def test_assigned_partitions_are_listed_without_a_commit() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    await join(cluster, "g", TP, TopicPartition("t", 1))
    async with an_admin(cluster) as admin:
        lags = await admin.consumer_group_lag("g")
        assert list(lags) == [TP, TopicPartition("t", 1)]
        assert {each.standing for each in lags.values()} == {Standing.NOTHING_COMMITTED}
        assert await admin.consumer_group_lag("nope") == {}

"""Test which findings about look-ups by time are reported for given time spans of partitions."""

from __future__ import annotations

from tidelog.client.admin.timestamp_skew import find_skew
from tidelog.client.admin.topic_time_spans import PartitionTimes
from tidelog.records import RecordTime

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def partition(number: int, *ago_ms: int, size_bytes: int = 1000) -> PartitionTimes:
    """Return a partition with records of these ages."""
    records = tuple(RecordTime(offset, NOW_MS - ago) for offset, ago in enumerate(ago_ms))
    newest = max(records, key=lambda each: (each.timestamp, -each.offset), default=None)
    return PartitionTimes(number, 0, len(records), size_bytes, newest, records)


def findings(*partitions: PartitionTimes) -> list[tuple[str, tuple[int, ...]]]:
    return [(each.kind, each.partitions) for each in find_skew(partitions, NOW_MS)]


def test_even_partitions_in_order_have_no_findings() -> None:
    assert findings(partition(0, 3 * DAY_MS, DAY_MS, 0), partition(1, 3 * DAY_MS - HOUR_MS, 1000, 1000, 500)) == []
    assert findings(partition(0), partition(1)) == []


def test_disorder_is_reported_from_a_second_on() -> None:
    assert findings(partition(0, 5_000, 4_000, 4_999)) == []
    assert findings(partition(0, 5_000, 4_000, 5_000)) == [("out_of_order", (0,))]
    (skew,) = find_skew([partition(3, 9_000, 1_000, 2_500, 4_000, 0)], NOW_MS)
    assert "the record at offset 3 is 3 s older than the one at 1" in skew.text


def test_newest_record_counts_if_no_sample_is_it() -> None:
    samples = (RecordTime(0, NOW_MS - 9_000), RecordTime(99, NOW_MS - 7_000))
    hidden = PartitionTimes(0, 0, 100, 1, RecordTime(50, NOW_MS), samples)
    (skew,) = find_skew([hidden], NOW_MS)
    assert "the record at offset 99 is 7 s older than the one at 50" in skew.text


def test_record_from_the_future_is_reported_from_five_minutes_on() -> None:
    assert findings(partition(0, 0, -299_999)) == []
    (skew,) = find_skew([partition(0, 0, -7200_000)], NOW_MS)
    assert (skew.kind, skew.partitions) == ("future", (0,))
    assert (
        "offset 1 is 2 h ahead of this machine's clock" in skew.text and "message.timestamp.after.max.ms" in skew.text
    )


def test_partitions_with_distant_starts_or_ends_are_named_with_the_gaps() -> None:
    long, short, stale = partition(0, 10 * DAY_MS, 0), partition(1, DAY_MS, 0), partition(2, 10 * DAY_MS, 5 * DAY_MS)
    assert findings(long, short, stale, partition(3)) == [("far_apart", (1,)), ("far_apart", (2,))]
    late, early = find_skew([long, short, stale], NOW_MS)
    assert (
        "partition 1 begins later than others: from 2027-01-05T08:00:00.000Z to 2027-01-14T08:00:00.000Z" in late.text
    )
    assert "before_log_start" in late.text
    assert (
        "partition 2 ends earlier than others: from 2027-01-10T08:00:00.000Z to 2027-01-15T08:00:00.000Z" in early.text
    )
    assert "past_end" in early.text


def test_many_partitions_are_counted_not_listed() -> None:
    (skew,) = find_skew([partition(0, DAY_MS, 0), *(partition(n, HOUR_MS, 0) for n in range(1, 9))], NOW_MS)
    assert "partitions 1, 2, 3 and 5 more begin later" in skew.text
    assert skew.partitions == tuple(range(1, 9))


def test_partitions_that_are_filled_unevenly_are_named_with_their_sizes() -> None:
    sixty_gb = 60 << 30
    assert findings(partition(0, 5, size_bytes=sixty_gb), partition(1, 5, size_bytes=sixty_gb // 10)) == []
    assert findings(partition(0, 5, size_bytes=1 << 19), partition(1, 5, size_bytes=1)) == []
    assert findings(partition(0, 5, size_bytes=sixty_gb), partition(1, size_bytes=0)) == [("uneven", (1, 0))]
    assert findings(partition(0, 5, size_bytes=sixty_gb)) == []


def test_values_that_the_leader_did_not_report_are_left_out() -> None:
    assert findings(PartitionTimes(0), partition(1, 5), PartitionTimes(2, 0, 5)) == []
    assert PartitionTimes(0).records is None and PartitionTimes(0).oldest is None

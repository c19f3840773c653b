"""Test starting at a time: `seek_to_time` for all partitions at once, and `auto_offset_reset` as a time."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tidelog.clients import a_consumer, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster, FakePartition, Fault
from tests.virtual_time import on_virtual_time
from tidelog import OlderRecords, StartingPoint, StartReason, TopicPartition
from tidelog.errors import (
    ConfigError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    SecondsForMillisecondsWarning,
    TimeoutError,
    TopicAuthorizationFailedError,
)
from tidelog.protocol.messages import ListOffsetsRequest, OffsetForLeaderEpochRequest, Request

P0, P1, P2, P3, P4 = (TopicPartition("t", number) for number in range(5))


def five_partitions(cluster: FakeCluster) -> list[FakePartition]:
    """Return partitions for the target 20: a match in the middle, trimmed, only newer, only older, and empty."""
    partitions = cluster.create("t", 5)
    for partition, times in zip(partitions, ([10, 20, 15, 30], [1, 2, 50], [40, 10], [5, 6], []), strict=True):
        for time in times:
            put(partition, b"%d" % time, at_ms=time)
    partitions[1].first_offset = 2
    del partitions[1].batches[:2]
    return partitions


POINTS = {
    P0: StartingPoint(1, StartReason.FOUND, 20, 0),
    P1: StartingPoint(2, StartReason.BEFORE_LOG_START, 50, 0, OlderRecords.GONE),
    P2: StartingPoint(0, StartReason.BEFORE_LOG_START, 40, 0, OlderRecords.NEVER_WRITTEN),
    P3: StartingPoint(2, StartReason.PAST_END, None, 0),
    P4: StartingPoint(0, StartReason.EMPTY, None, 0, OlderRecords.NEVER_WRITTEN),
}


@on_virtual_time
async def test_every_assigned_partition_has_a_start_with_its_reason() -> None:
    cluster = FakeCluster()
    partitions = five_partitions(cluster)
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign(POINTS)
        assert await consumer.seek_to_time(20) == POINTS
        assert [await consumer.position(tp) for tp in POINTS] == [point.offset for point in POINTS.values()]
        assert sorted(await read(consumer, 6)) == [
            (0, 1, b"20"), (0, 2, b"15"), (0, 3, b"30"), (1, 2, b"50"), (2, 0, b"40"), (2, 1, b"10"),
        ]  # fmt: skip
        put(partitions[3], b"new", at_ms=60)
        put(partitions[4], b"first", at_ms=60)
        assert sorted(await read(consumer, 2)) == [(3, 2, b"new"), (4, 0, b"first")]


@on_virtual_time
async def test_first_record_with_exactly_the_time_is_found() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a", at_ms=20)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=20)
        assert await consumer.seek_to_time(at) == {P0: StartingPoint(0, StartReason.FOUND, 20, 0)}


@on_virtual_time
async def test_emptied_partition_reports_that_its_records_are_gone() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a", at_ms=20)
    partition.first_offset = 1
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        assert await consumer.seek_to_time(5) == {P0: StartingPoint(1, StartReason.EMPTY, None, 0, OlderRecords.GONE)}


@on_virtual_time
async def test_records_without_a_timestamp_are_records_before_the_end() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a", at_ms=-1)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        assert await consumer.seek_to_time(5) == {P0: StartingPoint(1, StartReason.PAST_END, None, 0)}


@on_virtual_time
async def test_newly_elected_leader_is_asked_whether_it_has_the_found_record() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a", b"b", at_ms=20)
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        assert (await consumer.seek_to_time(20))[P0].leader_epoch == 0
        partition.elect(2)
        assert await read(consumer, 2) == [(0, 0, b"a"), (0, 1, b"b")]
        asked = cluster.sent(OffsetForLeaderEpochRequest)
        assert asked and asked[0].partitions[0].leader_epoch == 0  # type: ignore[attr-defined]


@on_virtual_time
async def test_only_named_partitions_move_and_their_fetched_data_is_dropped() -> None:
    cluster = FakeCluster()
    five_partitions(cluster)
    async with a_consumer(cluster, consumer_timeout_ms=500) as consumer:
        consumer.assign([P0, P2])
        first = await anext(consumer)
        assert (first.partition, first.offset) == (0, 0)
        assert list(await consumer.seek_to_time(30, P0, P0)) == [P0]
        assert sorted([(each.partition, each.offset) async for each in consumer]) == [(0, 3), (2, 0), (2, 1)]
        assert await consumer.seek_to_time(20, P2) == {P2: POINTS[P2]}
        with pytest.raises(ValueError, match="t-1 is not assigned"):
            await consumer.seek_to_time(20, P0, P1)
        consumer.assign([])
        assert await consumer.seek_to_time(20) == {}


@on_virtual_time
async def test_invalid_time_is_rejected_and_seconds_cause_a_warning() -> None:
    cluster = FakeCluster()
    five_partitions(cluster)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P1])
        with pytest.raises(ValueError, match=r"time must be from 0 to .* not -1"):
            await consumer.seek_to_time(-1)
        with pytest.raises(ValueError, match=r"time: 2024-01-01T00:00:00 has no time zone"):
            await consumer.seek_to_time(datetime(2024, 1, 1))
        with pytest.warns(SecondsForMillisecondsWarning, match="1550804131000"):
            await consumer.seek_to_time(1_550_804_131)


@on_virtual_time
async def test_where_one_partition_gives_no_answer_none_has_moved() -> None:
    cluster = FakeCluster()
    partitions = five_partitions(cluster)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P3])
        before = [await consumer.position(tp) for tp in (P0, P3)]
        partitions[3].leader = -1
        with pytest.raises(TimeoutError, match=r"in 7\d\d ms for t-3: "):
            await consumer.seek_to_time(20, timeout_ms=700)
        partitions[3].elect(1)
        cluster.refusals[ListOffsetsRequest].append(TopicAuthorizationFailedError.code)
        with pytest.raises(TopicAuthorizationFailedError, match=r"t-[03]"):
            await consumer.seek_to_time(20)
        assert [await consumer.position(tp) for tp in (P0, P3)] == before


@on_virtual_time
async def test_partition_that_is_revoked_meanwhile_is_omitted() -> None:
    cluster = FakeCluster()
    five_partitions(cluster)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P2])
        seeking = asyncio.create_task(consumer.seek_to_time(20))
        await asyncio.sleep(0)
        consumer.assign([P2])
        assert await seeking == {P2: POINTS[P2]}


@on_virtual_time
async def test_retriable_errors_of_leaders_are_retried() -> None:
    cluster = FakeCluster()
    partitions = five_partitions(cluster)
    async with a_consumer(cluster) as consumer:
        consumer.assign(POINTS)
        await asyncio.sleep(0.1)
        cluster.refusals[ListOffsetsRequest].extend([OffsetNotAvailableError.code, 0, OffsetNotAvailableError.code])
        cluster.move(partitions[0])
        points = await consumer.seek_to_time(20)
        assert {tp: point.offset for tp, point in points.items()} == {tp: point.offset for tp, point in POINTS.items()}


@on_virtual_time
async def test_a_log_that_loses_its_records_meanwhile_is_begun_where_it_begins() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a", at_ms=1)
    asked = iter(range(9))

    def delete_all(broker: int, request: Request) -> Fault | None:
        if isinstance(request, ListOffsetsRequest) and next(asked) == 1:
            put(partition, b"b", at_ms=2)
            partition.first_offset = 2
        return None

    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await consumer.position(P0)
        cluster.fault_of = delete_all
        assert await consumer.seek_to_time(9) == {P0: StartingPoint(2, StartReason.EMPTY, None, 0, OlderRecords.GONE)}


# --- writes during the look-up --------------------------------------------------------------------


@settings(max_examples=150)
@given(
    before=st.lists(st.integers(0, 9), max_size=4),
    meanwhile=st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=6),
    committed_late=st.integers(0, 2),
    target=st.integers(0, 9),
)
@on_virtual_time
async def test_no_record_at_or_after_the_time_is_skipped_during_writes(
    before: list[int], meanwhile: list[list[int]], committed_late: int, target: int
) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    for time in before:
        put(partition, b"", at_ms=time)
    partition.high_watermark = max(0, partition.end_offset - committed_late)
    writes = iter(meanwhile)

    def write(broker: int, request: Request) -> Fault | None:
        if isinstance(request, ListOffsetsRequest):
            for time in next(writes, []):
                put(partition, b"", at_ms=time)
            partition.high_watermark = max(0, partition.end_offset - committed_late)
        return None

    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        cluster.fault_of = write
        point = (await consumer.seek_to_time(target))[P0]
    times = [record.timestamp for record in partition.records()]
    wanted = [offset for offset, time in enumerate(times) if time >= target]
    assert all(offset >= point.offset for offset in wanted)
    if point.reason in (StartReason.FOUND, StartReason.BEFORE_LOG_START):
        assert point.offset == wanted[0]


# --- auto_offset_reset ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        "@20",
        "@1970-01-01T00:00:00.020Z",
        "@1970-01-01 01:00:00.020 Europe/Berlin",
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=20),
    ],
)
@on_virtual_time
async def test_a_reader_without_a_position_begins_at_the_time_that_was_set(setting: Any) -> None:
    cluster = FakeCluster()
    five_partitions(cluster)
    async with a_consumer(cluster, auto_offset_reset=setting) as consumer:
        consumer.assign(POINTS)
        assert [await consumer.position(tp) for tp in POINTS] == [point.offset for point in POINTS.values()]
        assert len(await read(consumer, 6)) == 6


@pytest.mark.parametrize("setting", ["by_duration:PT1H", "by_duration:pt59m60.0s", timedelta(hours=1)])
@on_virtual_time
async def test_a_duration_counts_from_the_moment_at_which_a_position_is_needed(setting: Any) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_consumer(cluster, auto_offset_reset=setting) as consumer:
        await asyncio.sleep(7200)
        now_ms = consumer.clock.now_ms()
        for ago_ms in (3_700_000, 3_600_000 - 10, 1_000):
            put(partition, b"%d" % ago_ms, at_ms=now_ms - ago_ms)
        consumer.assign([P0])
        assert await consumer.position(P0) == 1


@on_virtual_time
async def test_out_of_range_position_moves_to_the_configured_time(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()
    five_partitions(cluster)
    async with a_consumer(cluster, auto_offset_reset="@20") as consumer:
        consumer.assign([P0, P1])
        consumer.seek(P1, 1)
        consumer.seek(P0, 99)
        with caplog.at_level(logging.INFO, "tidelog"):
            assert len(await read(consumer, 4)) == 4
        assert (
            "t-1: going from offset 1 to the time 1970-01-01T00:00:00.020Z: the offset is out of range, valid is 2 to 3"
        ) in caplog.text
        assert "t-1: before_log_start: begins at 2 for 1970-01-01T00:00:00.020Z" in caplog.text


@on_virtual_time
async def test_error_without_a_policy_has_the_valid_range_and_the_next_step() -> None:
    cluster = FakeCluster()
    five_partitions(cluster)
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P1])
        ways = "seek elsewhere, or set auto_offset_reset to earliest, latest, a duration or a time"
        with pytest.raises(OffsetOutOfRangeError, match=f"t-1: no position was given.*; {ways}"):
            await consumer.poll(1000)
        consumer.seek(P1, 1)
        with pytest.raises(OffsetOutOfRangeError, match=f"offset 1 is out of range, valid is 2 to 3; {ways}") as raised:
            await consumer.poll(1000)
        assert (raised.value.topic_partition, raised.value.offset) == (P1, 1)
        assert (raised.value.first, raised.value.end) == (2, 3)


@on_virtual_time
async def test_a_reader_whose_leader_is_away_begins_when_it_is_back() -> None:
    cluster = FakeCluster()
    partitions = five_partitions(cluster)
    partitions[0].leader = -1
    async with a_consumer(cluster, auto_offset_reset="@20") as consumer:
        consumer.assign([P0])
        assert await consumer.poll(2000) == {}
        partitions[0].elect(2)
        started = seconds()
        assert await consumer.position(P0) == 1
        assert seconds() - started < 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("now", "must be 'earliest', 'latest', 'none', a duration .* or a time .*, not 'now'"),
        (None, "must be 'earliest'"),
        (5, "must be 'earliest'"),
        ("by_duration:", "'' is not an ISO 8601 duration with days or smaller units, such as PT1H or P1D"),
        ("by_duration:1h", "'1h' is not an ISO 8601 duration"),
        ("by_duration:P", "'P' is not an ISO 8601 duration"),
        ("by_duration:PT", "'PT' is not an ISO 8601 duration"),
        ("by_duration:P1M", "'P1M' is not an ISO 8601 duration"),
        ("by_duration:-PT1H", "'-PT1H' is not an ISO 8601 duration"),
        ("by_duration:P" + "9" * 400 + "D", "is too long for a duration"),
        (timedelta(seconds=-1), "the duration -1 day, 23:59:59 is negative"),
        (datetime(2024, 1, 1), "auto_offset_reset: 2024-01-01T00:00:00 has no time zone"),
        (datetime(1960, 1, 1, tzinfo=UTC), "auto_offset_reset must be from 0 to"),
        ("@yesterday 12:00", "auto_offset_reset: yesterday 12:00 does not say which time zone"),
        ("@-5", "a timestamp must not be negative"),
        ("@soon", "'soon' is not a time"),
    ],
)
def test_invalid_policy_is_rejected(setting: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        a_consumer(FakeCluster(), auto_offset_reset=setting)


def test_a_policy_in_seconds_is_warned_of() -> None:
    with pytest.warns(SecondsForMillisecondsWarning, match="auto_offset_reset: 1550804131 ms is 1970"):
        a_consumer(FakeCluster(), auto_offset_reset="@1550804131")

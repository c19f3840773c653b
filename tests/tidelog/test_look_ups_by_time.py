"""Test the guarantees of `offsets_for_times`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.tidelog.clients import a_consumer, put, seconds
from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tests.virtual_time import on_virtual_time
from tidelog import NoOffset, OffsetAndTimestamp, OffsetOutcome, TopicPartition
from tidelog.errors import (
    InvalidRecordError,
    InvalidTopicError,
    LeaderNotAvailableError,
    NoBrokersError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    SecondsForMillisecondsWarning,
    TimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from tidelog.protocol.messages import ListOffsetsRequest, MetadataRequest

P0, P1, P2, P3 = (TopicPartition("t", number) for number in range(4))


def with_times(cluster: FakeCluster, *times_of: Sequence[int]) -> list[FakePartition]:
    partitions = cluster.create("t", len(times_of))
    for partition, times in zip(partitions, times_of, strict=True):
        for time in times:
            put(partition, b"v", at_ms=time)
    return partitions


@on_virtual_time
async def test_the_earliest_offset_at_or_after_a_time_is_found() -> None:
    cluster = FakeCluster()
    with_times(cluster, [10, 30, 20, 30], [5], [])
    async with a_consumer(cluster) as consumer:
        found = await consumer.offsets_for_times({P0: 15, P1: 6, P2: 0})
        assert found == {P0: OffsetAndTimestamp(1, 30, 0), P1: None, P2: None}
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=10)
        assert await consumer.offsets_for_times({P0: at}) == {P0: OffsetAndTimestamp(0, 10, 0)}
        assert await consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 0}
        assert await consumer.end_offsets([P0, P2]) == {P0: 4, P2: 0}


@on_virtual_time
async def test_each_leader_is_asked_once_with_the_epoch_that_the_client_knows() -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 6)
    partitions[2].epoch = 5
    async with a_consumer(cluster) as consumer:
        await consumer.offsets_for_times({TopicPartition("t", number): 0 for number in range(6)})
    requests = cluster.sent(ListOffsetsRequest)
    assert len(requests) == 3
    epochs = {each.partition: each.current_leader_epoch for r in requests for each in r.partitions}  # type: ignore[attr-defined]
    assert epochs == {0: 0, 1: 0, 2: 5, 3: 0, 4: 0, 5: 0}


@on_virtual_time
async def test_look_up_among_undecodable_records_fails_at_once() -> None:
    cluster = FakeCluster()
    with_times(cluster, [1])
    cluster.refusals[ListOffsetsRequest].append(InvalidRecordError.code)
    async with a_consumer(cluster) as consumer:
        with pytest.raises(InvalidRecordError, match=r"t-0.* at offset 0 cannot be read"):
            await consumer.offsets_for_times({P0: 0})
    assert len(cluster.sent(ListOffsetsRequest)) == 1


@on_virtual_time
async def test_times_that_cannot_be_name_their_partition() -> None:
    async with a_consumer(FakeCluster()) as consumer:
        with pytest.raises(ValueError, match="t-1"):
            await consumer.offsets_for_times({P0: 0, P1: -1})
        with pytest.raises(ValueError, match=r"t-0.*time zone"):
            await consumer.offsets_for_times({P0: datetime(2024, 1, 1)})
        assert await consumer.offsets_for_times({}) == {}


@on_virtual_time
async def test_only_unanswered_partitions_are_requested_again() -> None:
    cluster = FakeCluster()
    first, _, _ = with_times(cluster, [1], [1], [1])
    async with a_consumer(cluster) as consumer:
        await consumer.end_offsets([P0, P1, P2])
        cluster.requests.clear()
        cluster.move(first)
        assert all((await consumer.offsets_for_times({P0: 0, P1: 0, P2: 0})).values())
    asked = [[each.partition for each in r.partitions] for r in cluster.sent(ListOffsetsRequest)]  # type: ignore[attr-defined]
    assert sorted(map(tuple, asked)) == [(0,), (0,), (1,), (2,)]


@on_virtual_time
async def test_leader_without_a_known_high_watermark_is_asked_again() -> None:
    cluster = FakeCluster()
    with_times(cluster, [1])
    cluster.refusals[ListOffsetsRequest].extend([78, 78])
    async with a_consumer(cluster) as consumer:
        assert await consumer.end_offsets([P0]) == {P0: 1}


@on_virtual_time
async def test_timeout_error_names_the_duration_and_missing_partitions() -> None:
    cluster = FakeCluster()
    first, _, _ = with_times(cluster, [1], [1], [1])
    first.leader = -1
    async with a_consumer(cluster) as consumer:
        started = seconds()
        with pytest.raises(TimeoutError, match=r"in 7\d\d ms for t-0: no leader is known$"):
            await consumer.offsets_for_times({P0: 0, P1: 0, P2: 0}, timeout_ms=700)
        assert 0.69 < seconds() - started < 0.8


@on_virtual_time
async def test_a_final_refusal_is_raised_at_once() -> None:
    cluster = FakeCluster()
    with_times(cluster, [1])
    cluster.refusals[ListOffsetsRequest].append(29)
    async with a_consumer(cluster) as consumer:
        started = seconds()
        with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
            await consumer.offsets_for_times({P0: 0})
        assert seconds() - started < 0.1


@on_virtual_time
async def test_stale_metadata_error_waits_for_metadata_and_others_back_off() -> None:
    for error, refreshes in ((NotLeaderOrFollowerError, 1), (OffsetNotAvailableError, 0)):
        cluster = FakeCluster()
        with_times(cluster, [1])
        async with a_consumer(cluster, retry_backoff_ms=100, retry_backoff_max_ms=100) as consumer:
            await consumer.end_offsets([P0])
            cluster.requests.clear()
            cluster.refusals[ListOffsetsRequest].append(error.code)
            started = seconds()
            assert (await consumer.offsets_for_times({P0: 0}))[P0] is not None
            assert 0.08 < seconds() - started < 0.13
        assert len(cluster.sent(MetadataRequest)) == refreshes
        assert len(cluster.sent(ListOffsetsRequest)) == 2


@pytest.mark.parametrize("earlier", [-1, -2, -3, -(1 << 63), 1 << 63])
@on_virtual_time
async def test_special_timestamps_are_not_accepted_as_times(earlier: int) -> None:
    async with a_consumer(FakeCluster()) as consumer:
        for partial in (False, True):
            with pytest.raises(ValueError, match=rf"times\[t-0\] must be from 0 to .*, not {earlier}"):
                await consumer.offsets_for_times({P0: earlier}, partial=partial)  # type: ignore[call-overload]


@on_virtual_time
async def test_a_datetime_between_two_milliseconds_means_the_later_one() -> None:
    cluster = FakeCluster()
    with_times(cluster, [5, 6])
    between = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=5, microseconds=1)
    async with a_consumer(cluster) as consumer:
        assert await consumer.offsets_for_times({P0: between}) == {P0: OffsetAndTimestamp(1, 6, 0)}


@pytest.mark.parametrize(
    ("times", "error", "message"),
    [
        ({("t", "0"): 1}, TypeError, r"times: a key=\('t', '0'\): the number must be an integer, not '0'"),
        ({"t-0": 1}, TypeError, r"times: a key must be a TopicPartition\(topic, number\), not 't-0'"),
        ({("t", True): 1}, TypeError, "times: a key.* must be an integer, not True"),
        ({("t", -1): 1}, ValueError, "times: a key.* must be from 0 to 2147483647, not -1"),
        ({("bad/name", 0): 1}, InvalidTopicError, "only ASCII letters"),
        ({P0: "yesterday"}, TypeError, r"times\[t-0\] must be whole milliseconds or an aware datetime"),
        ({P0: 1.5}, TypeError, r"times\[t-0\] must be whole milliseconds or an aware datetime"),
        ({P0: True}, TypeError, r"times\[t-0\] must be milliseconds or an aware datetime"),
        ([P0], TypeError, "times must be a mapping by partitions, not "),
    ],
)
@on_virtual_time
async def test_invalid_partition_or_time_is_named(times: Any, error: type[Exception], message: str) -> None:
    async with a_consumer(FakeCluster()) as consumer:
        for partial in (False, True):
            with pytest.raises(error, match=message):
                await consumer.offsets_for_times(times, partial=partial)  # type: ignore[call-overload]


@on_virtual_time
async def test_missing_partition_is_reported_within_seconds() -> None:
    cluster = FakeCluster()
    with_times(cluster, [1])
    async with a_consumer(cluster) as consumer:
        for tp, message in (
            (P1, "topic 't' has no partition 1"),
            (TopicPartition("no", 0), "topic 'no' does not exist"),
        ):
            started = seconds()
            with pytest.raises(UnknownTopicOrPartitionError, match=message):
                await consumer.offsets_for_times({P0: 0, tp: 0}, timeout_ms=60_000)
            assert seconds() - started < 5


@on_virtual_time
async def test_seconds_instead_of_milliseconds_cause_a_warning() -> None:
    cluster = FakeCluster()
    with_times(cluster, [1], [1])
    async with a_consumer(cluster) as consumer:
        with pytest.warns(SecondsForMillisecondsWarning) as warned:
            await consumer.offsets_for_times({P0: 1_550_804_131, P1: 1_550_804_131})
        assert [str(each.message) for each in warned] == [
            "times[t-0]: 1550804131 ms is 1970-01-18T22:46:44.131Z; "
            "if seconds were meant, give milliseconds: 1550804131000"
        ]


@pytest.mark.filterwarnings("error")
@on_virtual_time
async def test_other_times_are_not_warned_of() -> None:
    cluster = FakeCluster()
    with_times(cluster, [1])
    async with a_consumer(cluster) as consumer:
        for time in (0, 999_999_999, 10_000_000_000, 1_550_804_131_000):
            await consumer.offsets_for_times({P0: time})


# --- an outcome for each partition ----------------------------------------------------------------


@on_virtual_time
async def test_each_partition_without_an_offset_has_a_reason() -> None:
    cluster = FakeCluster()
    *_, waiting = with_times(cluster, [10, 30], [5], [], [5, 50])
    waiting.high_watermark = 1
    async with a_consumer(cluster) as consumer:
        assert await consumer.offsets_for_times(dict.fromkeys((P0, P1, P2, P3), 20), partial=True) == {
            P0: OffsetOutcome(OffsetAndTimestamp(1, 30, 0)),
            P1: OffsetOutcome(None, NoOffset.PAST_END),
            P2: OffsetOutcome(None, NoOffset.EMPTY),
            P3: OffsetOutcome(None, NoOffset.ABOVE_HIGH_WATERMARK),
        }
        waiting.high_watermark = 2
        committed = await consumer.offsets_for_times({P3: 20}, partial=True)
        assert committed == {P3: OffsetOutcome(OffsetAndTimestamp(1, 50, 0))}


@on_virtual_time
async def test_a_partition_whose_records_were_all_deleted_is_empty() -> None:
    cluster = FakeCluster()
    (partition,) = with_times(cluster, [10, 30])
    partition.first_offset = 2
    async with a_consumer(cluster) as consumer:
        assert (await consumer.offsets_for_times({P0: 20}, partial=True))[P0].reason == "empty"


@on_virtual_time
async def test_records_without_timestamp_are_not_found_and_not_counted_as_empty() -> None:
    cluster = FakeCluster()
    with_times(cluster, [-1])
    async with a_consumer(cluster) as consumer:
        assert await consumer.offsets_for_times({P0: 0}) == {P0: None}
        assert (await consumer.offsets_for_times({P0: 0}, partial=True))[P0].reason == "past_end"


@on_virtual_time
async def test_a_leaderless_partition_loses_no_other_answer() -> None:
    cluster = FakeCluster()
    first, _ = with_times(cluster, [1], [1])
    first.leader = -1
    async with a_consumer(cluster) as consumer:
        started = seconds()
        outcomes = await consumer.offsets_for_times({P0: 0, P1: 0}, timeout_ms=700, partial=True)
        assert 0.69 < seconds() - started < 0.8
    assert outcomes[P1] == OffsetOutcome(OffsetAndTimestamp(0, 1, 0))
    assert outcomes[P0].reason is NoOffset.RETRY and isinstance(outcomes[P0].error, LeaderNotAvailableError)


@on_virtual_time
async def test_error_of_one_partition_keeps_the_other_answers() -> None:
    cluster = FakeCluster(brokers=1)
    with_times(cluster, [1], [1])
    cluster.refusals[ListOffsetsRequest].append(TopicAuthorizationFailedError.code)
    async with a_consumer(cluster) as consumer:
        nowhere = TopicPartition("nowhere", 0)
        outcomes = await consumer.offsets_for_times({nowhere: 0, P0: 0}, partial=True)
        assert outcomes[nowhere].reason is NoOffset.REFUSED
        assert isinstance(outcomes[nowhere].error, UnknownTopicOrPartitionError)
        assert outcomes[P0].reason is NoOffset.REFUSED
        assert isinstance(outcomes[P0].error, TopicAuthorizationFailedError)
        assert (await consumer.offsets_for_times({P0: 0}, partial=True))[P0].found is not None


@on_virtual_time
async def test_outcomes_have_each_partition_in_the_order_of_the_request() -> None:
    cluster = FakeCluster()
    with_times(cluster, [1], [], [1])
    async with a_consumer(cluster) as consumer:
        outcomes = await consumer.offsets_for_times({P2: 0, ("t", 1): 0, P0: 0, P1: 9}, partial=True)  # type: ignore[dict-item]
        assert list(outcomes) == [P2, P1, P0]
        assert await consumer.end_offsets([P0, P0, ("t", 0)]) == {P0: 1}  # type: ignore[list-item]
        assert await consumer.offsets_for_times({}, partial=True) == {}


@on_virtual_time
async def test_unreachable_cluster_has_no_outcomes() -> None:
    cluster = FakeCluster()
    cluster.live = dict.fromkeys(cluster.live, False)
    async with a_consumer(cluster, bootstrap_timeout_ms=300) as consumer:
        with pytest.raises(NoBrokersError, match="fake:1001"):
            await consumer.offsets_for_times({P0: 0}, partial=True)

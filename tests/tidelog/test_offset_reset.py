"""Resets of a group: a dry run returns the changes, and new offsets stay within the log."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.tidelog.clients import put
from tests.tidelog.fake_cluster import FakeCluster
from tests.tidelog.group_members import join
from tests.tidelog.test_admin import an_admin
from tests.virtual_time import on_virtual_time
from tidelog.client.consumer.offset_lookup import Ends
from tidelog.client.consumer.seek_to_time import OlderRecords, StartingPoint, StartReason
from tidelog.errors import (
    GroupIdNotFoundError,
    InvalidRequestError,
    NonEmptyGroupError,
    SecondsForMillisecondsWarning,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from tidelog.groups.reset import (
    Adjustment,
    OffsetReset,
    ResetTarget,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    resolve,
)
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.protocol.group_messages import OffsetCommitRequest
from tidelog.protocol.messages import Request

TP = TopicPartition("t", 0)
ENDS = Ends(10, 20)


@pytest.mark.parametrize(
    ("target", "old", "expected"),
    [
        (ToEarliest(), None, (10, None)),
        (ToLatest(), 12, (20, None)),
        (ToCurrent(), 12, (12, None)),
        (ToCurrent(), 3, (10, Adjustment.LOG_START)),
        (ToCurrent(), 33, (20, Adjustment.LOG_END)),
        (ToCurrent(), None, (20, Adjustment.NOTHING_COMMITTED)),
        (ToOffset(10), None, (10, None)),
        (ToOffset(20), None, (20, None)),
        (ToOffset(9), 12, (10, Adjustment.LOG_START)),
        (ToOffset(21), 12, (20, Adjustment.LOG_END)),
        (ShiftBy(3), 12, (15, None)),
        (ShiftBy(-2), 12, (10, None)),
        (ShiftBy(-3), 12, (10, Adjustment.LOG_START)),
        (ShiftBy(9), 12, (20, Adjustment.LOG_END)),
    ],
)
def test_a_new_offset_lies_within_the_log(
    target: ResetTarget, old: int | None, expected: tuple[int, Adjustment | None]
) -> None:
    assert resolve(TP, target, old, ENDS, None) == expected


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        (StartingPoint(15, StartReason.FOUND, 500), (15, None)),
        (
            StartingPoint(10, StartReason.BEFORE_LOG_START, 700, older=OlderRecords.GONE),
            (10, Adjustment.BEFORE_LOG_START),
        ),
        (StartingPoint(20, StartReason.PAST_END), (20, Adjustment.PAST_END)),
        (StartingPoint(20, StartReason.EMPTY), (20, Adjustment.EMPTY)),
        (StartingPoint(7, StartReason.FOUND, 500), (10, Adjustment.LOG_START)),
    ],
)
def test_reset_to_a_time_finds_a_record_or_names_the_reason(
    point: StartingPoint, expected: tuple[int, Adjustment | None]
) -> None:
    assert resolve(TP, ToTime(500), 12, ENDS, point) == expected


def test_partition_without_a_commit_cannot_be_shifted() -> None:
    with pytest.raises(InvalidRequestError, match="t-0: cannot shift, because the group has no committed offset"):
        resolve(TP, ShiftBy(1), None, ENDS, None)


def a_cluster(*times: int) -> FakeCluster:
    """Return a cluster with a topic `t` of one partition, and a record at each time."""
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    for at_ms in times:
        put(partition, b"v", at_ms=at_ms)
    return cluster


@on_virtual_time
async def test_dry_run_returns_old_and_new_offsets_and_changes_nothing() -> None:
    cluster = a_cluster(1_000, 2_000, 3_000)
    async with an_admin(cluster) as admin:
        await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(2)})
        plan = await admin.reset_consumer_group_offsets("g", ToTime(1_500))
        assert plan == {TP: OffsetReset(2, 1, 3_000, 2_000)}
        assert len(cluster.sent(OffsetCommitRequest)) == 1
        assert await admin.list_consumer_group_offsets("g") == {TP: OffsetAndMetadata(2)}
        assert await admin.reset_consumer_group_offsets("g", ToTime(1_500), execute=True) == plan
        assert await admin.list_consumer_group_offsets("g") == {TP: OffsetAndMetadata(1)}


@on_virtual_time
async def test_offset_at_the_log_end_has_no_time() -> None:
    cluster = a_cluster(1_000)
    async with an_admin(cluster) as admin:
        plan = await admin.reset_consumer_group_offsets("g", ToTime(9_000), [TP])
        assert plan == {TP: OffsetReset(None, 1, None, None, Adjustment.PAST_END)}


@on_virtual_time
async def test_missing_group_is_created_only_for_named_partitions() -> None:
    cluster = a_cluster(1_000, 2_000)
    async with an_admin(cluster) as admin:
        with pytest.raises(GroupIdNotFoundError, match="group 'new' does not exist"):
            await admin.reset_consumer_group_offsets("new", ToEarliest())
        await admin.reset_consumer_group_offsets("new", ToOffset(1), [TP], execute=True)
        assert await admin.list_consumer_group_offsets("new") == {TP: OffsetAndMetadata(1)}


@on_virtual_time
async def test_a_group_with_members_is_not_moved_and_they_are_named() -> None:
    cluster = a_cluster(1_000)
    await join(cluster, "g", TP)
    async with an_admin(cluster) as admin:
        for execute in (False, True):
            with pytest.raises(NonEmptyGroupError, match=r"group 'g' has members \(one at /fake\): stop them first"):
                await admin.reset_consumer_group_offsets("g", ToEarliest(), [TP], execute=execute)
        assert not cluster.sent(OffsetCommitRequest)


@on_virtual_time
async def test_reset_moves_no_partition_if_one_cannot_move() -> None:
    cluster = a_cluster(1_000)
    async with an_admin(cluster) as admin:
        gone = TopicPartition("t", 5)
        plan = await admin.reset_consumer_group_offsets("g", ToLatest(), [TP, gone])
        assert plan[TP] == OffsetReset(None, 1)
        assert isinstance(plan[gone].error, UnknownTopicOrPartitionError)
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.reset_consumer_group_offsets("g", ToLatest(), [TP, gone], execute=True)
        assert not cluster.sent(OffsetCommitRequest)


@on_virtual_time
async def test_member_that_joins_meanwhile_is_reported_for_each_partition() -> None:
    cluster = a_cluster(1_000)
    handle = cluster.handle

    async def somebody_joins_first(broker: int, request: Request) -> object:
        if isinstance(request, OffsetCommitRequest):
            await join(cluster, "g", TP)
        return await handle(broker, request)

    cluster.handle = somebody_joins_first  # type: ignore[method-assign,assignment]
    async with an_admin(cluster) as admin:
        outcome = await admin.reset_consumer_group_offsets("g", ToLatest(), [TP], execute=True)
        assert isinstance(outcome[TP].error, UnknownMemberIdError)


@on_virtual_time
async def test_a_time_may_be_an_aware_datetime_and_seconds_are_warned_of() -> None:
    cluster = a_cluster(1_000, 2_000)
    async with an_admin(cluster) as admin:
        moment = datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC)
        plan = await admin.reset_consumer_group_offsets("g", ToTime(moment), [TP])
        assert plan[TP].new_offset == 1
        with pytest.raises(ValueError, match=r"target\.time: .* has no time zone"):
            await admin.reset_consumer_group_offsets("g", ToTime(moment.replace(tzinfo=None)), [TP])
        with pytest.raises(ValueError, match=r"target\.time must be from 0 to"):
            await admin.reset_consumer_group_offsets("g", ToTime(-1), [TP])
        with pytest.warns(SecondsForMillisecondsWarning, match="give milliseconds: 1700000000000"):
            await admin.reset_consumer_group_offsets("g", ToTime(1_700_000_000), [TP])

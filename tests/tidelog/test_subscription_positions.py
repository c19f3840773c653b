"""Test the look-ups of positions, and the reset of positions that have become invalid."""

from __future__ import annotations

import pytest

from tests.tidelog.clients import put
from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tests.tidelog.position_setup import P0, Committed, position_setup
from tests.tidelog.test_assigned_partition import fetch
from tests.virtual_time import on_virtual_time
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.position_state import (
    AwaitingCommit,
    Failed,
    Fetching,
    PositionState,
    Resetting,
    Validating,
)
from tidelog.client.metadata import Leader
from tidelog.errors import (
    ClusterAuthorizationFailedError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetAndMetadata
from tidelog.protocol.messages import FetchPartitionResponse


def a_cluster(*times_ms: int) -> tuple[FakeCluster, FakePartition]:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    for at_ms in times_ms:
        put(partition, b"v", at_ms=at_ms)
    return cluster, partition


# --- look-ups by the leader -------------------------------------------------------------------------


@pytest.mark.parametrize(("to", "offset"), [(EARLIEST_TIMESTAMP, 1), (LATEST_TIMESTAMP, 3)])
@on_virtual_time
async def test_partition_starts_at_an_end_of_the_log(to: int, offset: int) -> None:
    cluster, log = a_cluster(10, 20, 30)
    log.first_offset = 1
    async with position_setup(cluster) as setup:
        partition = AssignedPartition(P0, to)
        await setup.positions.find_ends(await setup.request(partition))
        assert partition.position == offset and partition.state == Fetching()


@pytest.mark.parametrize(("to", "offset"), [(15, 1), (20, 1), (99, 3)])
@on_virtual_time
async def test_partition_starts_at_a_time_or_at_the_end(to: int, offset: int) -> None:
    cluster, _ = a_cluster(10, 20, 30)
    async with position_setup(cluster) as setup:
        partition = AssignedPartition(P0, to)
        await setup.positions.find_times(await setup.request(partition))
        assert partition.position == offset and partition.state == Fetching()


@on_virtual_time
async def test_offset_of_a_leader_that_was_replaced_is_validated() -> None:
    cluster, _ = a_cluster(10)
    async with position_setup(cluster) as setup:
        partition = AssignedPartition(P0, LATEST_TIMESTAMP)
        await setup.positions.find_ends(await setup.request(partition, Leader(2, 0, "id")))
        assert partition.position == 1 and partition.state == Validating()


@on_virtual_time
async def test_answer_after_a_seek_is_ignored() -> None:
    cluster, _ = a_cluster(10)
    async with position_setup(cluster) as setup:
        partition = AssignedPartition(P0, LATEST_TIMESTAMP)
        requested = await setup.request(partition)
        partition.seek(0)
        await setup.positions.find_ends(requested)
        assert partition.position == 0 and partition.state == Validating()


@on_virtual_time
async def test_refused_look_up_is_reported_and_repeated_after_a_pause() -> None:
    cluster, _ = a_cluster()
    async with position_setup(cluster) as setup:
        partition = AssignedPartition(P0, LATEST_TIMESTAMP)
        requested = await setup.request(partition)
        del cluster.partitions["t"]
        await setup.positions.find_ends(requested)
        assert isinstance(partition.standing_error.error, UnknownTopicOrPartitionError)
        assert partition.state == Resetting(LATEST_TIMESTAMP)
        assert partition.retry.attempts == 1
        assert partition.retry.at_ms > setup.client.clock.monotonic_ms()


# --- committed offsets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset_to", "committed", "position", "state"),
    [
        (EARLIEST_TIMESTAMP, OffsetAndMetadata(7, "", 5), 7, Validating()),
        (EARLIEST_TIMESTAMP, OffsetAndMetadata(7, "", None), 7, Validating()),
        (EARLIEST_TIMESTAMP, None, None, Resetting(EARLIEST_TIMESTAMP)),
        (None, None, None, Failed()),
    ],
    ids=["with an epoch", "without an epoch", "no commit", "no commit and no policy"],
)
@on_virtual_time
async def test_partition_starts_at_the_commit_or_as_the_policy_says(
    reset_to: int | None, committed: OffsetAndMetadata | None, position: int | None, state: PositionState
) -> None:
    cluster, _ = a_cluster()
    async with position_setup(cluster, Committed({P0: committed} if committed else {})) as setup:
        partition = AssignedPartition(P0, reset_to, awaits_commit=True)
        await setup.positions.find_committed([(partition, partition.generation)])
        assert (partition.position, partition.state) == (position, state)
        epoch = committed.leader_epoch if committed is not None else None
        assert partition.fetch_epoch == (-1 if epoch is None else epoch)


@on_virtual_time
async def test_error_of_the_coordinator_is_reported() -> None:
    cluster, _ = a_cluster()
    async with position_setup(cluster) as setup:
        setup.committed.error = ClusterAuthorizationFailedError("no")
        one, moved = (AssignedPartition(P0, None, awaits_commit=True) for _ in range(2))
        asked = [(one, one.generation), (moved, moved.generation)]
        moved.seek(3)
        await setup.positions.find_committed(asked)
        assert one.standing_error.error is setup.committed.error and one.state == AwaitingCommit(None)
        assert one.retry.leader is None and one.retry.attempts == 1
        assert moved.standing_error.error is None


@on_virtual_time
async def test_commit_that_is_found_after_a_seek_is_ignored() -> None:
    cluster, _ = a_cluster()
    async with position_setup(cluster, Committed({P0: OffsetAndMetadata(7, "", None)})) as setup:
        partition = AssignedPartition(P0, None, awaits_commit=True)
        asked = [(partition, partition.generation)]
        partition.seek(3)
        await setup.positions.find_committed(asked)
        assert partition.position == 3


# --- invalid positions ------------------------------------------------------------------------------

OUT_OF_RANGE = FetchPartitionResponse("t", 0, OffsetOutOfRangeError.code, 9, 8, 4, None)


@on_virtual_time
async def test_policy_is_applied_to_an_offset_out_of_range_and_a_recreated_topic() -> None:
    cluster, _ = a_cluster()
    async with position_setup(cluster) as setup:
        partition = await setup.fetching(3)
        setup.positions.on_out_of_range(partition, OUT_OF_RANGE)
        assert partition.state == Resetting(EARLIEST_TIMESTAMP) and partition.standing_error.error is None
        partition = await setup.fetching(3)
        setup.positions.on_topic_recreated(partition)
        assert partition.state == Resetting(EARLIEST_TIMESTAMP) and partition.topic_id == ""


@pytest.mark.parametrize(("isolation_level", "end"), [("read_uncommitted", 9), ("read_committed", 8)])
@on_virtual_time
async def test_without_a_policy_the_error_has_the_valid_range(isolation_level: str, end: int) -> None:
    cluster, _ = a_cluster()
    async with position_setup(cluster, auto_offset_reset="none", isolation_level=isolation_level) as setup:
        partition = await setup.fetching(3)
        setup.positions.on_out_of_range(partition, OUT_OF_RANGE)
        error = partition.standing_error.error
        assert isinstance(error, OffsetOutOfRangeError)
        assert (error.topic_partition, error.offset, error.first, error.end) == (P0, 3, 4, end)
        assert partition.state == Fetching() and partition.position == 3


@on_virtual_time
async def test_records_fetched_before_come_before_the_error() -> None:
    cluster, _ = a_cluster()
    async with position_setup(cluster, auto_offset_reset="none") as setup:
        partition = await setup.fetching(3)
        fetch(partition)
        setup.positions.on_out_of_range(partition, OUT_OF_RANGE)
        assert partition.standing_error.error is None and partition.has_data


@on_virtual_time
async def test_without_a_policy_a_recreated_topic_or_no_position_is_an_error() -> None:
    cluster, _ = a_cluster()
    async with position_setup(cluster, auto_offset_reset="none") as setup:
        partition = await setup.fetching(3)
        setup.positions.on_topic_recreated(partition)
        error = partition.standing_error.error
        assert isinstance(error, OffsetOutOfRangeError) and error.made_anew and error.offset == 3
        failed = AssignedPartition(P0, None)
        setup.positions.on_no_position(failed)
        assert "no position was given" in str(failed.standing_error.error) and failed.state == Failed()

"""Test the client's reaction to each error that a broker may return for a look-up, a fetch or a group's commits."""

from __future__ import annotations

import pytest

from tests.tidelog.clients import a_consumer, put, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog.aio import Consumer
from tidelog.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedLeaderEpochError,
    InvalidRequestError,
    LeaderNotAvailableError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    OffsetMetadataTooLargeError,
    OffsetNotAvailableError,
    StorageError,
    TopicAuthorizationFailedError,
    UnknownLeaderEpochError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from tidelog.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from tidelog.protocol.group_messages import FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest
from tidelog.protocol.messages import FetchRequest, ListOffsetsRequest, MetadataRequest

TP = TopicPartition("t", 0)

#: After these errors the client finds the leader again, and asks it.
LEADER_ELSEWHERE = [
    UnknownTopicOrPartitionError,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    FencedLeaderEpochError,
    UnknownLeaderEpochError,
    StorageError,
]
#: A repeated request would get the same error.
FINAL_FOR_LOOK_UPS = [
    UnknownServerError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
    InvalidRequestError,
    UnsupportedForMessageFormatError,
]


def with_a_record() -> FakeCluster:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"v")
    return cluster


@pytest.mark.parametrize("error", [*LEADER_ELSEWHERE, OffsetNotAvailableError])
@on_virtual_time
async def test_look_up_by_time_is_repeated_after(error: type[BrokerError]) -> None:
    cluster = with_a_record()
    async with a_consumer(cluster) as consumer:
        await consumer.end_offsets([TP])
        cluster.requests.clear()
        cluster.refusals[ListOffsetsRequest].append(error.code)
        found = await consumer.offsets_for_times({TP: 0})
    assert isinstance(found[TP], OffsetAndTimestamp)
    assert len(cluster.sent(ListOffsetsRequest)) == 2
    assert bool(cluster.sent(MetadataRequest)) is (error in LEADER_ELSEWHERE)


@pytest.mark.parametrize("error", FINAL_FOR_LOOK_UPS)
@on_virtual_time
async def test_look_up_by_time_fails_at_once_after(error: type[BrokerError]) -> None:
    cluster = with_a_record()
    cluster.refusals[ListOffsetsRequest].append(error.code)
    async with a_consumer(cluster) as consumer:
        started = seconds()
        with pytest.raises(error, match="t-0"):
            await consumer.offsets_for_times({TP: 0})
        assert seconds() - started < 0.1


@pytest.mark.parametrize("error", LEADER_ELSEWHERE)
@on_virtual_time
async def test_a_reader_goes_on_after(error: type[BrokerError]) -> None:
    cluster = with_a_record()
    cluster.refusals[FetchRequest].append(error.code)
    async with a_consumer(cluster) as consumer:
        consumer.assign([TP])
        assert [record.value for record in (await consumer.poll(10_000))[TP]] == [b"v"]


# --- groups ------------------------------------------------------------------------------------------

#: The coordinator is another broker, or none yet: step 1 is repeated before step 2.
FOUND_AGAIN = [NotCoordinatorError, CoordinatorNotAvailableError]


async def committed(consumer: Consumer) -> int | None:
    found = (await consumer.committed([TP]))[TP]
    return found and found.offset


@pytest.mark.parametrize("error", [*FOUND_AGAIN, CoordinatorLoadInProgressError])
@pytest.mark.parametrize("step", [OffsetCommitRequest, OffsetFetchRequest])
@on_virtual_time
async def test_committed_offsets_are_requested_again_after(
    step: type[OffsetCommitRequest | OffsetFetchRequest], error: type[BrokerError]
) -> None:
    cluster = with_a_record()
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        assert await committed(consumer) is None
        cluster.requests.clear()
        cluster.refusals[step].append(error.code)
        await consumer.commit({TP: OffsetAndMetadata(7, "associated metadata")})
        assert await committed(consumer) == 7
    assert len(cluster.sent(step)) == 2
    assert len(cluster.sent(FindCoordinatorRequest)) == (error in FOUND_AGAIN)


@on_virtual_time
async def test_finding_the_coordinator_is_tried_again_after_a_pause() -> None:
    cluster = with_a_record()
    cluster.refusals[FindCoordinatorRequest] += [CoordinatorNotAvailableError.code] * 3
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        await consumer.commit({TP: OffsetAndMetadata(7)})
        assert await committed(consumer) == 7
    assert len(cluster.sent(FindCoordinatorRequest)) == 4


@on_virtual_time
async def test_metadata_that_is_too_large_is_the_callers_to_reduce() -> None:
    cluster = with_a_record()
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        await consumer.commit({TP: OffsetAndMetadata(7, "x" * 4096)})
        started = seconds()
        with pytest.raises(OffsetMetadataTooLargeError, match="t-0"):
            await consumer.commit({TP: OffsetAndMetadata(8, "x" * 4097)})
        assert seconds() - started < 0.1
        with pytest.raises(OffsetMetadataTooLargeError, match="t-0: metadata of 40000 bytes: must be at most 32767"):
            await consumer.commit({TP: OffsetAndMetadata(8, "x" * 40_000)})
        assert await committed(consumer) == 7


@on_virtual_time
async def test_impossible_offset_is_rejected_before_it_is_sent() -> None:
    cluster = with_a_record()
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        await consumer.commit({TP: OffsetAndMetadata((1 << 63) - 1)})
        with pytest.raises(ValueError, match=r"offsets\[t-0\]\.offset must be .* not 9223372036854775808"):
            await consumer.commit({TP: OffsetAndMetadata(1 << 63)})
        assert len(cluster.sent(OffsetCommitRequest)) == 1


@on_virtual_time
async def test_coordinator_is_found_again_after_a_broken_connection() -> None:
    cluster = with_a_record()
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        await consumer.commit({TP: OffsetAndMetadata(7)})
        cluster.kill(cluster.coordinator.broker_of("g"))
        await consumer.commit({TP: OffsetAndMetadata(8)})
        cluster.kill(cluster.coordinator.broker_of("g"))
        assert await committed(consumer) == 8

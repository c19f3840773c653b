"""Test look-ups of offsets by the modification times of segments."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.tidelog.clients import a_consumer, put
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    SecondsForMillisecondsWarning,
    StorageError,
    TimeoutError,
    TopicAuthorizationFailedError,
)
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.protocol.list_offsets_v0_messages import ListSegmentOffsetsRequest

T0 = 1_700_000_000_000
TPS = [TopicPartition("t", number) for number in range(3)]


def a_cluster() -> FakeCluster:
    """Three segments in partition 0, one in partition 1, none in partition 2."""
    cluster = FakeCluster()
    first, second, _ = cluster.create("t", 3)
    for number in range(3):
        put(first, b"a", b"b", at_ms=T0 + number * 1000)
    put(second, b"c", at_ms=T0 + 5000)
    return cluster


@on_virtual_time
async def test_offsets_come_from_all_leaders_newest_first_and_limited() -> None:
    async with a_consumer(a_cluster()) as consumer:
        at = dict.fromkeys(TPS, T0 + 1500)
        assert await consumer.offsets_before(at) == {TPS[0]: [2], TPS[1]: [], TPS[2]: []}
        assert await consumer.offsets_before(at, 5) == {TPS[0]: [2, 0], TPS[1]: [], TPS[2]: []}
        latest = await consumer.offsets_before(dict.fromkeys(TPS, LATEST_TIMESTAMP), 2)
        assert latest == {TPS[0]: [6, 4], TPS[1]: [1, 0], TPS[2]: [0]}
        assert await consumer.offsets_before({TPS[0]: datetime.fromtimestamp(T0 / 1000, UTC)}) == {TPS[0]: [0]}
        assert await consumer.offsets_before({}) == {}


@on_virtual_time
async def test_retriable_error_is_retried_and_a_final_one_is_raised() -> None:
    cluster = a_cluster()
    passing = (NotLeaderOrFollowerError, OffsetNotAvailableError, StorageError)
    cluster.refusals[ListSegmentOffsetsRequest].extend(error.code for error in passing)
    async with a_consumer(cluster) as consumer:
        assert await consumer.offsets_before({TPS[0]: T0}) == {TPS[0]: [0]}
        cluster.refusals[ListSegmentOffsetsRequest].append(TopicAuthorizationFailedError.code)
        with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
            await consumer.offsets_before({TPS[0]: T0})
        cluster.move(cluster.partitions["t"][0])
        assert await consumer.offsets_before({TPS[0]: T0}) == {TPS[0]: [0]}
        for broker in cluster.live:
            cluster.kill(broker, elect=False)
        with pytest.raises(TimeoutError, match="t-0"):
            await consumer.offsets_before({TPS[0]: T0}, timeout_ms=1000)


@pytest.mark.parametrize(
    ("time", "most", "error", "message"),
    [
        (-3, 1, ValueError, r"times\[t-0\]"),
        (datetime(2026, 1, 1), 1, ValueError, "has no time zone"),
        (True, 1, TypeError, r"times\[t-0\]"),
        ("now", 1, TypeError, r"times\[t-0\]"),
        (T0, -1, ValueError, "max_num_offsets"),
        (T0, 1 << 31, ValueError, "max_num_offsets"),
        (T0, "1", TypeError, "max_num_offsets must be an integer, not '1'"),
        (T0, True, TypeError, "max_num_offsets must be an integer, not True"),
    ],
)
@on_virtual_time
async def test_invalid_time_or_number_is_rejected(time: Any, most: Any, error: type[Exception], message: str) -> None:
    async with a_consumer(a_cluster()) as consumer:
        with pytest.raises(error, match=message):
            await consumer.offsets_before({TPS[0]: time}, most)


@on_virtual_time
async def test_seconds_are_warned_of() -> None:
    async with a_consumer(a_cluster()) as consumer:
        with pytest.warns(SecondsForMillisecondsWarning) as warned:
            assert await consumer.offsets_before(dict.fromkeys(TPS, T0 // 1000)) == {tp: [] for tp in TPS}
        assert [str(each.message).split(":")[0] for each in warned] == ["times[t-0]"]
        assert await consumer.offsets_before({TPS[0]: EARLIEST_TIMESTAMP}) is not None

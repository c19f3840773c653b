"""Copies of commits that the network delays on another connection: none overwrites a later commit."""

from __future__ import annotations

import asyncio

import pytest

from cluster.groups.commit_sequences import MAX_COMMITTER_ID, MAX_COMMITTERS, MAX_IDLE_MS, CommitSequences
from tests.node.client_requests import TP
from tests.node.group_cluster import GROUP, TP1, GroupCluster
from tests.node.offsets_topic import OFFSETS
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
    NotCoordinatorError,
    OutOfOrderSequenceError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
)
from tidelog.protocol.messages import Response


def commit_of(
    sequence: int, *offsets: tuple[TopicPartition, int], committer: str = "a", epoch: int = -1
) -> OffsetCommitRequest:
    parts = tuple(OffsetCommitPartition(*tp, offset) for tp, offset in offsets)
    return OffsetCommitRequest(GROUP, parts, committer_id=committer, sequence=sequence, coordinator_epoch=epoch)


def codes(response: Response) -> list[int]:
    return [each.error_code for each in response.partitions]  # type: ignore[attr-defined]


async def send(cluster: GroupCluster, request: OffsetCommitRequest) -> list[int]:
    return codes(await cluster.coordinator.ask(request))


async def epoch_found(cluster: GroupCluster) -> int:
    [found] = (await cluster.coordinator.ask(FindCoordinatorRequest((GROUP,)))).coordinators
    assert found.broker_id == cluster.coordinator.broker_id
    return int(found.epoch)


@on_virtual_time
async def test_delayed_copy_of_a_commit_does_not_overwrite_a_later_commit() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        repeated = commit_of(0, (TP, 1960))
        assert await send(cluster, repeated) == [0], "sent again over another connection"
        assert await send(cluster, commit_of(1, (TP, 1976))) == [0]
        assert await send(cluster, repeated) == [OutOfOrderSequenceError.code], "the first copy, delayed by the network"
        assert await cluster.committed() == (0, 1976)
        await cluster.coordinate(2)
        assert await cluster.committed() == (0, 1976)


@on_virtual_time
async def test_delayed_commit_of_another_partition_is_refused_too() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await send(cluster, commit_of(1, (TP, 5))) == [0]
        assert await send(cluster, commit_of(0, (TP, 4), (TP1, 4))) == [OutOfOrderSequenceError.code] * 2
        assert await cluster.committed() == (0, 5)
        assert await cluster.committed(tp=TP1) == (0, -1)


@on_virtual_time
async def test_copy_of_an_acknowledged_commit_is_acknowledged_without_effect() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        reset = commit_of(0, (TP, 5))
        assert await send(cluster, reset) == [0]
        assert await send(cluster, commit_of(0, (TP, 9), committer="b")) == [0]
        assert await send(cluster, reset) == [0]
        assert await cluster.committed() == (0, 9)
        assert (await cluster.coordinator.ask(DeleteGroupsRequest((GROUP,)))).groups[0].error_code == 0
        assert await send(cluster, reset) == [0]
        assert (await cluster.describe()).state == "Dead", "the copy did not create the group again"


@on_virtual_time
async def test_committer_with_a_long_id_is_refused() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await send(cluster, commit_of(0, (TP, 5), committer="a" * MAX_COMMITTER_ID)) == [0]
        too_long = commit_of(0, (TP, 6), committer="a" * (MAX_COMMITTER_ID + 1))
        assert await send(cluster, too_long) == [InvalidRequestError.code]
        assert await cluster.committed() == (0, 5)


@on_virtual_time
async def test_repeated_commit_is_written_if_the_first_write_failed() -> None:
    async with GroupCluster(offsets_commit_timeout_ms=300) as cluster:
        await cluster.coordinate(1)
        cluster.cut(1, 2, 3)
        refused = [CoordinatorNotAvailableError.code]
        assert await send(cluster, commit_of(0, (TP, 2))) == refused, "the outcome is unknown"
        await asyncio.sleep(3)
        assert cluster.coordinator.replica(OFFSETS).partition.in_sync_count == 1
        assert await send(cluster, commit_of(1, (TP, 3))) == refused, "nothing was appended"
        cluster.heal()
        await asyncio.sleep(2)
        assert await send(cluster, commit_of(1, (TP, 3))) == [0]
        assert await cluster.committed() == (0, 3)


@on_virtual_time
async def test_refused_partition_is_tried_again_by_a_repeated_commit() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        unheard = TopicPartition("unheard", 0)
        repeated = commit_of(0, (TP, 5), (unheard, 5))
        for _ in range(2):
            assert await send(cluster, repeated) == [0, UnknownTopicOrPartitionError.code]


@on_virtual_time
async def test_commits_in_flight_at_once_are_all_acknowledged() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        waiting = [asyncio.ensure_future(send(cluster, commit_of(number, (TP, number)))) for number in range(3)]
        copy = asyncio.ensure_future(send(cluster, commit_of(1, (TP, 1))))
        assert await asyncio.gather(*waiting) == [[0]] * 3
        assert await copy == [OutOfOrderSequenceError.code]
        assert await cluster.committed() == (0, 2)


@on_virtual_time
async def test_delayed_commit_of_a_member_is_refused_within_its_generation() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        member = cluster.client()
        await member.settle()
        for sequence, offset, code in ((0, 5, 0), (1, 6, 0), (0, 5, OutOfOrderSequenceError.code)):
            assert await member.commit(offset, committer_id="a", sequence=sequence) == code
        assert await cluster.committed() == (0, 6)


@on_virtual_time
async def test_commit_for_a_coordinator_of_an_earlier_epoch_is_refused() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        first = await epoch_found(cluster)
        delayed = commit_of(0, (TP, 5), epoch=first)
        await cluster.coordinate(2)
        second = await epoch_found(cluster)
        assert await send(cluster, commit_of(0, (TP, 5), epoch=second)) == [0], "sent again to the new coordinator"
        assert await send(cluster, commit_of(1, (TP, 6), epoch=second)) == [0]
        await cluster.coordinate(1)
        assert await epoch_found(cluster) > second > first
        assert await send(cluster, delayed) == [NotCoordinatorError.code]
        assert await cluster.committed() == (0, 6)
        assert await send(cluster, commit_of(2, (TP, 7), epoch=await epoch_found(cluster))) == [0]


@on_virtual_time
async def test_commit_for_a_later_epoch_waits_for_the_election() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        later = await epoch_found(cluster) + 1
        assert await send(cluster, commit_of(0, (TP, 5), epoch=later)) == [NotCoordinatorError.code]
        await cluster.coordinate(1)
        assert await send(cluster, commit_of(0, (TP, 5), epoch=later)) == [0]


@on_virtual_time
async def test_delayed_commit_without_a_committer_overwrites_as_in_kafka() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        for offset in (1960, 1976, 1960):
            assert await cluster.commit(offset) == 0
        assert await cluster.committed() == (0, 1960)


# --- the rules ---------------------------------------------------------------------------------------


def test_committers_are_independent_of_each_other() -> None:
    commits = CommitSequences()
    commits.accept("a", 7, now_ms=0)
    assert not commits.is_acknowledged("b", 3)
    commits.accept("b", 3, now_ms=0)
    commits.acknowledge("b", 3)
    assert commits.is_acknowledged("b", 3)
    assert not commits.is_acknowledged("a", 7)
    with pytest.raises(OutOfOrderSequenceError, match="copy of commit 6: the same committer has sent commit 7"):
        commits.is_acknowledged("a", 6)


def test_acknowledgement_of_an_earlier_commit_is_not_that_of_the_newest() -> None:
    commits = CommitSequences()
    commits.accept("a", 0, now_ms=0)
    commits.accept("a", 1, now_ms=0)
    commits.acknowledge("a", 0)
    assert not commits.is_acknowledged("a", 1)
    commits.acknowledge("a", 1)
    commits.accept("a", 1, now_ms=0)
    assert commits.is_acknowledged("a", 1)
    commits.accept("a", 2, now_ms=0)
    assert not commits.is_acknowledged("a", 2)


def test_committers_are_forgotten_after_a_time_and_above_a_number() -> None:
    commits = CommitSequences()
    commits.accept("old", 5, now_ms=0)
    commits.accept("used", 5, now_ms=0)
    commits.accept("used", 5, now_ms=1)
    commits.accept("new", 0, now_ms=MAX_IDLE_MS + 1)
    assert len(commits) == 2
    assert not commits.is_acknowledged("old", 4)
    with pytest.raises(OutOfOrderSequenceError):
        commits.is_acknowledged("used", 4)
    for number in range(MAX_COMMITTERS - 1):
        commits.accept(str(number), 0, now_ms=MAX_IDLE_MS + 1)
    assert len(commits) == MAX_COMMITTERS
    assert not commits.is_acknowledged("used", 4), "the one with the oldest commit"

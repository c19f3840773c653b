"""Requests of the admin client for groups that have their offsets in ZooKeeper."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tidelog.fake_cluster import FakeCluster
from tests.tidelog.test_admin import an_admin
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    InvalidTopicError,
    RequestTimedOutError,
    TimeoutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from tidelog.groups.zookeeper_requests import ZooKeeperOffset
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest

T0, T1, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)


def a_cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.create("t", 2)
    return cluster


@on_virtual_time
async def test_offsets_in_zookeeper_are_written_listed_and_read() -> None:
    async with an_admin(a_cluster()) as admin:
        assert await admin.list_zookeeper_groups() == []
        await admin.alter_zookeeper_group_offsets("g", {T0: 7, T1: 0})
        await admin.alter_zookeeper_group_offsets("f", {T0: 1})
        assert await admin.list_zookeeper_groups() == ["f", "g"]
        assert await admin.list_zookeeper_group_offsets("g") == {T0: ZooKeeperOffset(7), T1: ZooKeeperOffset(0)}
        assert await admin.list_zookeeper_group_offsets("unknown") == {}


@on_virtual_time
async def test_offsets_of_missing_partitions_have_an_error() -> None:
    cluster = a_cluster()
    cluster.zookeeper.committed["g"] |= {T0: 7, GONE: 9}
    async with an_admin(cluster) as admin:
        found = await admin.list_zookeeper_group_offsets("g")
    assert found[T0] == ZooKeeperOffset(7) and found[GONE].offset == 9
    assert isinstance(found[GONE].error, UnknownTopicOrPartitionError)


@on_virtual_time
async def test_refused_zookeeper_commit_names_its_partition() -> None:
    async with an_admin(a_cluster()) as admin:
        with pytest.raises(UnknownTopicOrPartitionError, match="gone-0"):
            await admin.alter_zookeeper_group_offsets("g", {GONE: 1, T0: 2})
        assert await admin.list_zookeeper_group_offsets("g") == {T0: ZooKeeperOffset(2)}


@on_virtual_time
async def test_invalid_zookeeper_offset_is_refused_without_a_request() -> None:
    async with an_admin(a_cluster()) as admin:
        with pytest.raises(ValueError, match=r"offsets\[t-0\] must be from 0 to .* not -1"):
            await admin.alter_zookeeper_group_offsets("g", {T0: -1})
        with pytest.raises(InvalidTopicError):
            await admin.alter_zookeeper_group_offsets("g", {TopicPartition("..", 0): 1})


@on_virtual_time
async def test_request_is_repeated_while_zookeeper_does_not_answer() -> None:
    cluster = a_cluster()
    for kind in (OffsetCommitRequest, OffsetFetchRequest, ListGroupsRequest):
        cluster.refusals[kind].extend([RequestTimedOutError.code, CoordinatorNotAvailableError.code])
    async with an_admin(cluster) as admin:
        await admin.alter_zookeeper_group_offsets("g", {T0: 7})
        assert await admin.list_zookeeper_group_offsets("g") == {T0: ZooKeeperOffset(7)}
        assert await admin.list_zookeeper_groups() == ["g"]
        assert not any(cluster.refusals.values())


@on_virtual_time
async def test_admin_without_zookeeper_times_out_at_its_deadline() -> None:
    cluster = a_cluster()
    cluster.refusals[OffsetCommitRequest].extend([RequestTimedOutError.code] * 1000)
    async with an_admin(cluster) as admin:
        with pytest.raises(TimeoutError, match="timed out waiting for offsets from ZooKeeper"):
            await admin.alter_zookeeper_group_offsets("g", {T0: 7}, timeout_ms=2000)


@pytest.mark.parametrize("group_id", ["..", "a/b", "g\n"])
@on_virtual_time
async def test_invalid_zookeeper_group_is_refused_without_a_request(group_id: Any) -> None:
    async with an_admin(a_cluster()) as admin:
        for call in (
            admin.list_zookeeper_group_offsets(group_id),
            admin.alter_zookeeper_group_offsets(group_id, {T0: 1}),
            admin.migrate_zookeeper_group(group_id),
        ):
            with pytest.raises(InvalidGroupIdError, match="in ZooKeeper"):
                await call


@on_virtual_time
async def test_unreadable_zookeeper_offset_has_an_error_and_others_are_read() -> None:
    cluster = a_cluster()
    cluster.zookeeper.committed["g"] |= {T0: 7}
    cluster.refusals[OffsetFetchRequest].append(UnknownServerError.code)
    async with an_admin(cluster) as admin:
        found = await admin.list_zookeeper_group_offsets("g")
    assert found[T0].offset == -1 and isinstance(found[T0].error, UnknownServerError)

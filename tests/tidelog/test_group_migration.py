"""Migration of groups from ZooKeeper: a dry run shows the changes, and no group moves back without `force`."""

from __future__ import annotations

import pytest

from tests.tidelog.fake_cluster import FakeCluster
from tests.tidelog.group_members import join
from tests.tidelog.test_admin import an_admin
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    GroupIdNotFoundError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from tidelog.groups.migration import Migration, OffsetMigration, migrate
from tidelog.groups.zookeeper_requests import ZooKeeperOffset
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.protocol.group_messages import OffsetCommitRequest

TPS = [TopicPartition("t", number) for number in range(4)]
GONE = TopicPartition("gone", 0)


@pytest.mark.parametrize(
    ("found", "committed", "force", "outcome"),
    [
        (7, None, False, Migration.MOVE),
        (7, 6, False, Migration.MOVE),
        (7, 7, False, Migration.SAME),
        (7, 7, True, Migration.SAME),
        (7, 8, False, Migration.KEEP),
        (7, 8, True, Migration.MOVE),
        (0, 1, False, Migration.KEEP),
    ],
)
def test_an_offset_moves_on_and_back_only_by_force(
    found: int, committed: int | None, force: bool, outcome: Migration
) -> None:
    assert migrate(ZooKeeperOffset(found), committed, force=force) == OffsetMigration(found, committed, outcome)


@pytest.mark.parametrize("force", [False, True])
def test_invalid_offset_or_missing_partition_is_refused(force: bool) -> None:
    unreadable, gone = UnknownServerError("no offset"), UnknownTopicOrPartitionError("gone")
    refused = migrate(ZooKeeperOffset(-1, unreadable), 5, force=force)
    assert refused == OffsetMigration(None, 5, Migration.REFUSE, unreadable)
    assert migrate(ZooKeeperOffset(7, gone), None, force=force) == OffsetMigration(7, None, Migration.REFUSE, gone)


async def a_group(cluster: FakeCluster) -> None:
    """Return a cluster with 10, 20, 30 and 40 in ZooKeeper, and nothing, 19, 30 and 41 committed."""
    cluster.create("t", 4)
    cluster.zookeeper.committed["g"] = {tp: 10 * (tp.partition + 1) for tp in TPS}
    async with an_admin(cluster) as admin:
        committed = {TPS[1]: 19, TPS[2]: 30, TPS[3]: 41}
        await admin.alter_consumer_group_offsets("g", {tp: OffsetAndMetadata(at) for tp, at in committed.items()})


async def committed(cluster: FakeCluster) -> list[int | None]:
    async with an_admin(cluster) as admin:
        found = await admin.list_consumer_group_offsets("g", TPS)
    return [at and at.offset for at in found.values()]


@on_virtual_time
async def test_migration_commits_only_with_execute_and_never_moves_back() -> None:
    cluster = FakeCluster()
    await a_group(cluster)
    async with an_admin(cluster) as admin:
        expected = [Migration.MOVE, Migration.MOVE, Migration.SAME, Migration.KEEP]
        plan = await admin.migrate_zookeeper_group("g")
        assert [plan[tp].outcome for tp in TPS] == expected
        assert await committed(cluster) == [None, 19, 30, 41]
        assert await admin.migrate_zookeeper_group("g", execute=True) == plan
        assert await committed(cluster) == [10, 20, 30, 41]
        again = await admin.migrate_zookeeper_group("g", execute=True)
        assert [again[tp].outcome for tp in TPS] == [Migration.SAME] * 3 + [Migration.KEEP]
        await admin.migrate_zookeeper_group("g", force=True, execute=True)
        assert await committed(cluster) == [10, 20, 30, 40]
        assert cluster.zookeeper.committed["g"] == {tp: 10 * (tp.partition + 1) for tp in TPS}, "it is left there"


@on_virtual_time
async def test_missing_partitions_are_reported_and_the_others_moved() -> None:
    cluster = FakeCluster()
    await a_group(cluster)
    cluster.zookeeper.committed["g"][GONE] = 3
    async with an_admin(cluster) as admin:
        plan = await admin.migrate_zookeeper_group("g", execute=True)
    assert plan[GONE].outcome is Migration.REFUSE and isinstance(plan[GONE].error, UnknownTopicOrPartitionError)
    assert await committed(cluster) == [10, 20, 30, 41]


@on_virtual_time
async def test_refused_commit_is_not_reported_as_a_move() -> None:
    cluster = FakeCluster()
    await a_group(cluster)
    cluster.refusals[OffsetCommitRequest].append(OffsetMetadataTooLargeError.code)
    async with an_admin(cluster) as admin:
        plan = await admin.migrate_zookeeper_group("g", execute=True)
    assert [plan[tp].outcome for tp in TPS[:2]] == [Migration.REFUSE] * 2
    assert isinstance(plan[TPS[0]].error, OffsetMetadataTooLargeError)


@on_virtual_time
async def test_a_group_with_members_or_without_offsets_is_refused() -> None:
    cluster = FakeCluster()
    await a_group(cluster)
    async with an_admin(cluster) as admin:
        with pytest.raises(GroupIdNotFoundError, match="'h' has no offsets in ZooKeeper"):
            await admin.migrate_zookeeper_group("h")
        await join(cluster, "g", *TPS)
        with pytest.raises(NonEmptyGroupError):
            await admin.migrate_zookeeper_group("g", execute=True)
    assert await committed(cluster) == [None, 19, 30, 41]

"""Copy a group's committed offsets from ZooKeeper to its coordinator: plan, and execution of the plan."""

from __future__ import annotations

from dataclasses import replace

from tidelog.aio.group_admin import GroupAdmin
from tidelog.aio.offset_reset import require_no_members
from tidelog.client.cluster_client import ClusterClient
from tidelog.errors import GroupIdNotFoundError, TidelogError
from tidelog.groups import zookeeper_requests
from tidelog.groups.migration import Migration, OffsetMigration, migrate
from tidelog.model import OffsetAndMetadata, TopicPartition


async def migrate_offsets(
    client: ClusterClient, groups: GroupAdmin, group_id: str, deadline_ms: int, *, force: bool, execute: bool
) -> dict[TopicPartition, OffsetMigration]:
    """See `Admin.migrate_zookeeper_group`."""
    found = await zookeeper_requests.group_offsets(client, group_id, deadline_ms)
    if not found:
        raise GroupIdNotFoundError(f"group {group_id!r} has no offsets in ZooKeeper")
    described = (await groups.describe([group_id], deadline_ms))[group_id]
    if isinstance(described, TidelogError):
        raise described
    require_no_members(described)
    committed = await groups.offsets(group_id, None, deadline_ms)
    plan: dict[TopicPartition, OffsetMigration] = {}
    for tp, offset in sorted(found.items()):
        before = committed.get(tp)
        plan[tp] = migrate(offset, None if before is None else before.offset, force=force)
    wanted = {
        tp: OffsetAndMetadata(each.zookeeper_offset)
        for tp, each in plan.items()
        if each.outcome is Migration.MOVE and each.zookeeper_offset is not None
    }
    if execute and wanted:
        outcomes = await groups.alter_offsets(group_id, wanted, deadline_ms)
        failed = {tp: error for tp, error in outcomes.items() if error is not None}
        plan |= {tp: replace(plan[tp], outcome=Migration.REFUSE, error=error) for tp, error in failed.items()}
    return plan

"""Reset a group's committed offsets: plan, and execution of the plan."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidelog.aio.group_admin import GroupAdmin
from tidelog.client.admin.record_timestamp import record_times
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.offset_lookup import Ends, find_ends
from tidelog.client.consumer.seek_to_time import StartingPoint, try_starting_points
from tidelog.errors import GroupIdNotFoundError, NonEmptyGroupError, TidelogError, raise_first
from tidelog.groups.descriptions import ConsumerGroupDescription, ConsumerGroupState, MemberDescription
from tidelog.groups.reset import OffsetReset, ResetTarget, ToTime, resolve
from tidelog.model import READ_UNCOMMITTED, OffsetAndMetadata, TopicPartition
from tidelog.quantities import first_of
from tidelog.timestamps import to_target_ms, warn_of_seconds

#: How long the timestamps that are shown beside the offsets may take; the reset does not need them.
_TIMES_TIME_LIMIT_MS = 3_000
_MOST_NAMED = 3
_WHAT = "the time to go to"


async def reset_offsets(
    client: ClusterClient,
    groups: GroupAdmin,
    group_id: str,
    target: ResetTarget,
    partitions: Iterable[TopicPartition] | None,
    deadline_ms: int,
    *,
    execute: bool,
) -> dict[TopicPartition, OffsetReset]:
    """See `Admin.reset_consumer_group_offsets`."""
    if isinstance(target, ToTime):
        warn_of_seconds(_WHAT, to_target_ms(target.time, _WHAT))
    described = await groups.describe([group_id], deadline_ms)
    group = described[group_id]
    if isinstance(group, TidelogError):
        raise group
    require_no_members(group)
    named = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
    committed = await groups.offsets(group_id, named, deadline_ms)
    if not committed and group.state is ConsumerGroupState.DEAD:
        raise GroupIdNotFoundError(f"group {group_id!r} does not exist")
    old = {tp: None if at is None else at.offset for tp, at in committed.items()}
    plan = await _plan(client, target, old, deadline_ms)
    if not execute:
        return plan
    raise_first(each.error for each in plan.values())
    wanted = {tp: OffsetAndMetadata(each.new_offset) for tp, each in plan.items() if each.new_offset is not None}
    outcomes = await groups.alter_offsets(group_id, wanted, deadline_ms)
    return {tp: replace(each, error=outcomes.get(tp)) for tp, each in plan.items()}


def require_no_members(group: ConsumerGroupDescription) -> None:
    """Raise NonEmptyGroupError, which names up to three members, unless the group is EMPTY or DEAD without members."""
    if not group.members and group.state in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD):
        return
    names = first_of(list(map(_name, group.members)), _MOST_NAMED)
    members = f"has members ({names})" if names else f"is not empty ({group.state})"
    raise NonEmptyGroupError(f"group {group.group_id!r} {members}: stop them first")


def _name(member: MemberDescription) -> str:
    return f"{member.group_instance_id or member.member_id} at {member.host}"


async def _plan(
    client: ClusterClient, target: ResetTarget, committed: Mapping[TopicPartition, int | None], deadline_ms: int
) -> dict[TopicPartition, OffsetReset]:
    def left_ms() -> int:
        return max(1, deadline_ms - client.clock.monotonic_ms())

    found: dict[TopicPartition, StartingPoint] = {}
    errors: dict[TopicPartition, TidelogError] = {}
    if isinstance(target, ToTime):
        times = dict.fromkeys(committed, to_target_ms(target.time, _WHAT))
        lookup = await try_starting_points(client, times, left_ms(), READ_UNCOMMITTED)
        found, errors = lookup.answers, lookup.unanswered
    ends, silent = await find_ends(client, [tp for tp in committed if tp not in errors], left_ms())
    errors |= silent
    plan: dict[TopicPartition, OffsetReset] = {}
    for tp, old in committed.items():
        try:
            if tp in errors:
                raise errors[tp]
            new, adjustment = resolve(tp, target, old, ends[tp], found.get(tp))
            plan[tp] = OffsetReset(old, new, adjustment=adjustment)
        except TidelogError as error:
            plan[tp] = OffsetReset(old, error=error)
    return await _with_times(client, plan, ends, min(left_ms(), _TIMES_TIME_LIMIT_MS))


async def _with_times(
    client: ClusterClient,
    plan: Mapping[TopicPartition, OffsetReset],
    ends: Mapping[TopicPartition, Ends],
    limit_ms: int,
) -> dict[TopicPartition, OffsetReset]:
    async def times(offsets: dict[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        readable = {
            tp: offset
            for tp, offset in offsets.items()
            if tp in ends and offset is not None and ends[tp].start <= offset < ends[tp].end
        }
        outcomes = await record_times(client, readable, limit_ms)
        return {tp: each.timestamp for tp, each in outcomes.answers.items() if each is not None}

    old, new = await asyncio.gather(
        times({tp: each.old_offset for tp, each in plan.items()}),
        times({tp: each.new_offset for tp, each in plan.items()}),
    )
    return {tp: replace(each, old_time=old.get(tp), new_time=new.get(tp)) for tp, each in plan.items()}

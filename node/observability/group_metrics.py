"""The metrics of a broker's group coordinator."""

from __future__ import annotations

import asyncio
from collections import Counter

from cluster.groups.group import GroupState
from node.groups.service import CoordinatorService
from node.observability.metric_families import Family, Kind, single

#: Groups that are counted before other work runs on the loop.
_GROUPS_AT_ONCE = 256


async def group_families(service: CoordinatorService) -> list[Family]:
    """Return the metrics of the groups that this broker coordinates. Other work runs on the loop in between."""
    states: Counter[GroupState] = Counter()
    members = offsets = 0
    for count, (_, hosted) in enumerate(service.coordinator.groups(), 1):
        states[hosted.group.state] += 1
        members += len(hosted.group.members)
        offsets += hosted.offsets.count
        if count % _GROUPS_AT_ONCE == 0:
            await asyncio.sleep(0)
    groups = Family("tidelog_groups", "consumer groups that this broker coordinates", labels=("state",))
    for state in GroupState:
        groups.add(states[state], state.value)
    shards = service.coordinator.shards
    return [
        groups,
        single("tidelog_group_members", "members of those groups", members),
        single("tidelog_committed_offsets", "committed offsets of those groups, held in memory", offsets),
        single(
            "tidelog_offsets_partitions_loading",
            "partitions of __consumer_offsets that this broker leads and has not loaded yet",
            sum(not shard.loaded for shard in shards),
        ),
        Family(
            "tidelog_offsets_load_seconds",
            "time from the election for such a partition until its groups are loaded",
            Kind.HISTOGRAM,
        ).add(shards.load_times),
        single(
            "tidelog_offsets_expired", "committed offsets that have expired", service.expired,
            Kind.COUNTER,
        ),
    ]  # fmt: skip

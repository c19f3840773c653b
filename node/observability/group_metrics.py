"""The numbers of a broker's group coordinator."""

from __future__ import annotations

import asyncio
from collections import Counter

from cluster.groups.group import GroupState
from node.groups.service import CoordinatorService
from node.observability.metric_families import Family, Kind, single

#: Groups that are looked at before other work gets a turn of the loop.
_TURN = 256


async def group_families(service: CoordinatorService) -> list[Family]:
    """As of now; other work gets its turns meanwhile."""
    states: Counter[GroupState] = Counter()
    members = offsets = 0
    for count, (_, hosted) in enumerate(service.coordinator.groups(), 1):
        states[hosted.group.state] += 1
        members += len(hosted.group.members)
        offsets += hosted.offsets.count
        if count % _TURN == 0:
            await asyncio.sleep(0)
    groups = Family("tidelog_groups", "consumer groups that this broker coordinates", labels=("state",))
    for state in GroupState:
        groups.add(states[state], state.value)
    shards = service.coordinator.shards
    return [
        groups,
        single("tidelog_group_members", "of those groups", members),
        single("tidelog_committed_offsets", "that are held in memory for those groups", offsets),
        single(
            "tidelog_offsets_partitions_loading",
            "partitions of __consumer_offsets that this broker leads and has not read yet",
            sum(not shard.loaded for shard in shards),
        ),
        Family(
            "tidelog_offsets_load_seconds", "from leading such a partition to answering for its groups", Kind.HISTOGRAM
        ).add(shards.load_times),
        single(
            "tidelog_offsets_expired", "committed offsets that had their time", service.expired,
            Kind.COUNTER,
        ),
    ]  # fmt: skip

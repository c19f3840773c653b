"""Which broker answers for a group, from when on, and until when."""

from __future__ import annotations

from tests.node.group_cluster import GroupCluster
from tests.virtual_time import on_virtual_time


@on_virtual_time
async def test_a_commit_is_told_to_whoever_asks_and_a_group_that_has_none_has_none() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(7) == 0
        assert await cluster.committed() == (0, 7)
        assert await cluster.committed(group="another") == (0, -1)

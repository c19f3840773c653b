"""The administrator of chaos moves replicas while clients work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.clients.chaos_stage import World
from tests.virtual_time import on_virtual_time, until
from tidelog.model import TopicPartition
from verify.chaos.clients.administrator import Administrator
from verify.chaos.load import LoadTopic


class FakeAdmin:
    """Describes the topic with these partitions at first, and with a replica of partition 0 from the second time on."""

    def __init__(self, *partitions: Any) -> None:
        self.moves: list[Mapping[TopicPartition, Sequence[int]]] = []
        self.described = 0
        self._at_first = partitions

    async def describe_cluster(self, timeout_ms: int) -> Any:
        return SimpleNamespace(brokers=[1, 2, 3])

    async def describe_topics(self, topics: Sequence[str], timeout_ms: int) -> Any:
        self.described += 1
        known = (SimpleNamespace(partition=0, replicas=(1, 2)),)
        return [SimpleNamespace(partitions=self._at_first if self.described == 1 else known)]

    async def alter_partition_reassignments(
        self, moves: Mapping[TopicPartition, Sequence[int]], timeout_ms: int
    ) -> None:
        self.moves.append(moves)


@pytest.mark.parametrize("at_first", [(), (SimpleNamespace(partition=0, replicas=()),)], ids=["missing", "unknown"])
@on_virtual_time
async def test_partition_that_the_broker_does_not_know_yet_is_moved_later(
    at_first: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, admin = World(LoadTopic("t", 1)), FakeAdmin(*at_first)

    @asynccontextmanager
    async def opened(self: object, name: str) -> Any:
        yield admin

    monkeypatch.setattr(type(world.context), "admin", opened)
    administrator = Administrator(world.context, "administrator", reassignment_interval_ms=1000)
    async with world.running(administrator):
        await until(lambda: len(admin.moves) > 0)
    (replicas,) = admin.moves[0].values()
    assert admin.described == 2 and len(replicas) == 2

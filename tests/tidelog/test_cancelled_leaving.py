"""Test a consumer that leaves its group while its user cancels the call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from tests.tidelog.clients import put
from tests.tidelog.fake_cluster import FakeCluster
from tests.tidelog.group_stories import Reading
from tests.virtual_time import on_virtual_time


@pytest.mark.parametrize("turns", range(1, 12))
def test_a_close_that_is_cancelled_at_any_moment_leaves_nothing_running(turns: int) -> None:
    @on_virtual_time
    async def story() -> None:
        cluster = FakeCluster()
        put(cluster.create("t")[0], b"x", b"y")
        reading = Reading(cluster).begin()
        await reading.owns(0)
        await reading.rest()
        await _cancelled_after(turns, reading.consumer.close())
        await reading.consumer.close()
        await asyncio.sleep(0)
        names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]
        assert not [name for name in names if name.startswith(("GroupConsumer", "Member", "TopicWatcher"))]

    story()


@pytest.mark.parametrize("turns", range(1, 12))
def test_unsubscribe_cancelled_at_any_moment_leaves_no_assignment(turns: int) -> None:
    @on_virtual_time
    async def story() -> None:
        cluster = FakeCluster()
        put(cluster.create("t")[0], b"x", b"y")
        reading = Reading(cluster).begin()
        await reading.owns(0)
        await reading.rest()
        await _cancelled_after(turns, reading.consumer.unsubscribe())
        assert reading.consumer.assignment() == set()
        reading.begin()
        await reading.owns(0)
        await reading.close()

    story()


async def _cancelled_after(turns: int, leaving: Coroutine[None, None, None]) -> None:
    task = asyncio.create_task(leaving)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

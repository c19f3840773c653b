"""Test that tasks wait for an event, or until a timeout."""

from __future__ import annotations

import asyncio

import pytest

from tests.virtual_time import on_virtual_time
from tidelog.client.tasks.async_event import Flag


def now_s() -> float:
    return asyncio.get_running_loop().time()


@on_virtual_time
async def test_a_flag_wakes_all_that_wait_and_stays_set() -> None:
    flag = Flag()
    waiting = [asyncio.create_task(flag.wait(timeout_s)) for timeout_s in (None, 10, 20)]
    await asyncio.sleep(5)
    assert not flag.is_set()
    flag.set()
    assert await asyncio.gather(*waiting) == [True, True, True]
    assert await flag.wait(0) and await flag.wait()
    flag.clear()
    assert not await flag.wait(1)


@on_virtual_time
async def test_wait_for_a_flag_ends_at_its_timeout() -> None:
    begun_s, flag = now_s(), Flag()
    assert not await flag.wait(3)
    assert now_s() == pytest.approx(begun_s + 3)


@on_virtual_time
async def test_cancelled_wait_for_a_flag_leaves_no_waiter() -> None:
    flag = Flag()
    waiting = asyncio.create_task(flag.wait(3))
    await asyncio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    flag.set()
    await asyncio.sleep(10)
    assert await flag.wait(0)

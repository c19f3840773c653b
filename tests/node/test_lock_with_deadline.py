"""A lock that requests wait for, and their deadlines."""

from __future__ import annotations

import asyncio

import pytest

from node.runtime.lock_with_deadline import lock_until
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.errors import RequestTimedOutError


@on_virtual_time
async def test_lock_is_held_by_one_at_a_time_in_order() -> None:
    lock, clock, order = asyncio.Lock(), VirtualClock(), []

    async def work(name: str) -> None:
        async with lock_until(lock, clock, -1):
            order.append(f"{name} begins")
            await asyncio.sleep(100)
            order.append(f"{name} ends")

    await asyncio.gather(work("a"), work("b"))
    assert order == ["a begins", "a ends", "b begins", "b ends"]


@on_virtual_time
async def test_waiter_past_its_deadline_leaves_the_queue() -> None:
    lock, clock = asyncio.Lock(), VirtualClock()
    await lock.acquire()
    deadline_ms = clock.monotonic_ms() + 500
    patient = asyncio.ensure_future(_pass(lock, clock))
    with pytest.raises(RequestTimedOutError):
        async with lock_until(lock, clock, deadline_ms):
            raise AssertionError("the waiter got the lock")
    assert clock.monotonic_ms() - deadline_ms in range(3)
    lock.release()
    await patient
    assert not lock.locked()


@on_virtual_time
async def test_deadline_does_not_interrupt_the_holder() -> None:
    lock, clock = asyncio.Lock(), VirtualClock()
    async with lock_until(lock, clock, clock.monotonic_ms() + 500):
        await asyncio.sleep(1)
    assert not lock.locked()


async def _pass(lock: asyncio.Lock, clock: VirtualClock) -> None:
    async with lock_until(lock, clock, -1):
        pass

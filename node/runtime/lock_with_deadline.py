"""A lock that a request waits for no longer than its sender waits for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidelog.clock import Clock
from tidelog.errors import RequestTimedOutError


@asynccontextmanager
async def lock_until(lock: asyncio.Lock | asyncio.Semaphore, clock: Clock, deadline_ms: int) -> AsyncIterator[None]:
    """Take the lock, hold the lock during the body, and release the lock after it.

    Raise RequestTimedOutError if the lock is not free by `deadline_ms` (monotonic; a negative value means no deadline).
    The deadline keeps the queue of waiters short, even if senders that gave up repeat their requests while the holder
    is slow.
    """
    try:
        async with asyncio.timeout(None if deadline_ms < 0 else (deadline_ms - clock.monotonic_ms()) / 1000):
            await lock.acquire()
    except TimeoutError:
        raise RequestTimedOutError("timed out waiting for earlier requests") from None
    try:
        yield
    finally:
        lock.release()


def raise_if_over(clock: Clock, deadline_ms: int) -> None:
    """Raise RequestTimedOutError if the time is at or after `deadline_ms` (monotonic).

    A request that names several things checks the deadline before each later one, so that none of them is started
    after the sender has given up.
    """
    if clock.monotonic_ms() >= deadline_ms:
        raise RequestTimedOutError("not started: earlier items of this request took all of its time")

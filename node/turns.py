"""Waiting for one's turn, no longer than somebody waits for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidelog.clock import Clock
from tidelog.errors import RequestTimedOutError


@asynccontextmanager
async def turn(lock: asyncio.Lock, clock: Clock, deadline_ms: int) -> AsyncIterator[None]:
    """Holds the lock, at once where it is free.

    RequestTimedOutError where it is not by `deadline_ms` (monotonic; below 0: never). Senders that ask again when they
    have waited long enough make no queue that grows then, however slow somebody is.
    """
    try:
        async with asyncio.timeout(None if deadline_ms < 0 else (deadline_ms - clock.monotonic_ms()) / 1000):
            await lock.acquire()
    except TimeoutError:
        raise RequestTimedOutError("who came before took all the time that this request had") from None
    try:
        yield
    finally:
        lock.release()

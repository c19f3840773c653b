"""Waiting for one's turn, no longer than somebody waits for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidelog.clock import Clock
from tidelog.errors import RequestTimedOutError


@asynccontextmanager
async def turn(lock: asyncio.Lock | asyncio.Semaphore, clock: Clock, deadline_ms: int) -> AsyncIterator[None]:
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


def raise_if_over(clock: Clock, deadline_ms: int) -> None:
    """RequestTimedOutError at `deadline_ms` (monotonic): what a request names after the first thing and has not begun
    by then is not done behind the back of who has given up.
    """
    if clock.monotonic_ms() >= deadline_ms:
        raise RequestTimedOutError("not begun: what this request named before took all the time that it had")

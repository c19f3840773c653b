"""A store that repeats harmless requests until they are answered, within a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from cluster.zookeeper.store import Node, NodeExistsError, NoNodeError, OutcomeUnknownError, Store

#: The interval between attempts, and between looks at another process's registration.
_RETRY_MS = 50

T = TypeVar("T")


class RetryingStore:
    """Repeats reads, and writes that are harmless when they happen twice. OutcomeUnknownError after `time_limit_ms`."""

    def __init__(self, store: Store, time_limit_ms: int) -> None:
        self._store = store
        self._time_limit_ms = time_limit_ms

    async def until_answered(self, request: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request while its outcome is unknown, and return its result; its other errors are raised.

        The request must be harmless when it happens twice.
        """
        async with self.deadline():
            while True:
                try:
                    return await request()
                except OutcomeUnknownError:
                    await self.pause()

    async def get_or_none(self, path: str, *, watch: bool = False) -> Node | None:
        """Return the node, or None if there is none.

        A watch fires when the node is set or deleted; a node that does not exist is not watched.
        """
        try:
            return await self.until_answered(lambda: self._store.get(path, watch=watch))
        except NoNodeError:
            return None

    async def children(self, parent: str, *, watch: bool = False) -> dict[str, bytes]:
        """Return the data of a node's children, by path in order; children that are removed meanwhile are left out.

        A watch fires when a child is created or removed. NoNodeError if the parent does not exist.
        """
        names = await self.until_answered(lambda: self._store.children(parent, watch=watch))
        paths = [f"{parent}/{name}" for name in sorted(names)]
        nodes = await asyncio.gather(*map(self.get_or_none, paths))
        return {path: node.data for path, node in zip(paths, nodes, strict=True) if node is not None}

    async def ensure(self, path: str, data: bytes = b"") -> None:
        """Create a persistent node unless it exists. NoNodeError if it has no parent."""
        try:
            await self.until_answered(lambda: self._store.create(path, data))
        except NodeExistsError:
            return

    async def pause(self) -> None:
        """Wait 50 ms before the next attempt."""
        await asyncio.sleep(_RETRY_MS / 1000)

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Cancel the block after `time_limit_ms`, whatever it waits for, and raise OutcomeUnknownError."""
        try:
            async with asyncio.timeout(self._time_limit_ms / 1000):
                yield
        except TimeoutError:
            raise OutcomeUnknownError(f"ZooKeeper gave no answer in {self._time_limit_ms} ms") from None

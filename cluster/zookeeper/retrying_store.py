"""A store for those who can wait: what may be repeated is repeated until it is answered, within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from cluster.zookeeper.store import Node, NodeExistsError, NoNodeError, OutcomeUnknownError, Store

#: How often an unknown outcome, or a registration of somebody else, is looked at again.
_RETRY_MS = 50

T = TypeVar("T")


class RetryingStore:
    """Reads, and writes that do no harm when they happen twice. OutcomeUnknownError after `patience_ms`."""

    def __init__(self, store: Store, patience_ms: int) -> None:
        self._store = store
        self._patience_ms = patience_ms

    async def until_answered(self, request: Callable[[], Awaitable[T]]) -> T:
        """Repeats a request while its outcome is unknown. It must do no harm when it happens twice."""
        async with self.deadline():
            while True:
                try:
                    return await request()
                except OutcomeUnknownError:
                    await self.pause()

    async def get_or_none(self, path: str) -> Node | None:
        """The node, None where there is none."""
        try:
            return await self.until_answered(lambda: self._store.get(path))
        except NoNodeError:
            return None

    async def children(self, parent: str, *, watch: bool = False) -> dict[str, bytes]:
        """What stands in the children of a node, by path in their order. The watch fires when one comes or goes."""
        names = await self.until_answered(lambda: self._store.children(parent, watch=watch))
        paths = [f"{parent}/{name}" for name in sorted(names)]
        nodes = await asyncio.gather(*map(self.get_or_none, paths))
        return {path: node.data for path, node in zip(paths, nodes, strict=True) if node is not None}

    async def ensure(self, path: str, data: bytes = b"") -> None:
        """Makes a persistent node unless it exists. NoNodeError without a parent."""
        try:
            await self.until_answered(lambda: self._store.create(path, data))
        except NodeExistsError:
            return

    async def pause(self) -> None:
        """A moment before the next look."""
        await asyncio.sleep(_RETRY_MS / 1000)

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Bounds what is done inside, whatever it waits for."""
        try:
            async with asyncio.timeout(self._patience_ms / 1000):
                yield
        except TimeoutError:
            raise OutcomeUnknownError(f"ZooKeeper gave no answer in {self._patience_ms} ms") from None

"""The line between a process and ZooKeeper's twin, which lives in a process of its own.

What the store does happens there, as kazoo's does on its threads; what it says arrives in a turn of the process that
asked. A process that is held falls silent, and one that was killed is never heard of again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from cluster.memory import MemoryStore
from cluster.store import ANY_VERSION, Listener, Node, NodeStat, Operation, Result, StoreEvent
from simulation.timeline import Process

T = TypeVar("T")


class RemoteStore:
    """A `Store` whose methods run in `there` and answer `here`."""

    def __init__(self, store: MemoryStore, here: Process, there: Process) -> None:
        self._store = store
        self._here = here
        self._there = there

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def connected(self) -> bool:
        return self._store.connected

    @property
    def session_timeout_ms(self) -> int:
        return self._store.session_timeout_ms

    @property
    def confirmed_at_ms(self) -> int:
        return self._store.confirmed_at_ms

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        subscribed = True

        def hear(event: StoreEvent) -> None:
            if subscribed:
                listener(event)

        def pass_on(event: StoreEvent) -> None:
            self._here.call_soon(hear, event)

        unsubscribe = self._store.subscribe(pass_on)

        def end() -> None:
            nonlocal subscribed
            subscribed = False
            unsubscribe()

        return end

    async def get(self, path: str, *, watch: bool = False) -> Node:
        return await across(self._here, self._there, self._store.get(path, watch=watch))

    async def exists(self, path: str, *, watch: bool = False) -> NodeStat | None:
        return await across(self._here, self._there, self._store.exists(path, watch=watch))

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        return await across(self._here, self._there, self._store.children(path, watch=watch))

    async def sync(self, path: str) -> None:
        await across(self._here, self._there, self._store.sync(path))

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, NodeStat]:
        made = self._store.create(path, data, ephemeral=ephemeral, sequence=sequence)
        return await across(self._here, self._there, made)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return await across(self._here, self._there, self._store.set(path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await across(self._here, self._there, self._store.delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await across(self._here, self._there, self._store.multi(operations))

    async def close(self) -> None:
        await across(self._here, self._there, self._store.close())


async def across(here: Process, there: Process, work: Coroutine[Any, Any, T]) -> T:
    """What the work comes to in another process. Cancelling who waits here does not undo it there."""
    found: asyncio.Future[T] = here.create_future()

    def answer(done: asyncio.Task[T]) -> None:
        def settle() -> None:
            if found.done():
                return
            if done.cancelled():
                found.cancel()
            elif (error := done.exception()) is not None:
                found.set_exception(error)
            else:
                found.set_result(done.result())

        if not done.cancelled():
            done.exception()  # seen, also where nobody waits any more
        here.call_soon(settle)

    there.call_soon(lambda: there.create_task(work).add_done_callback(answer))
    return await found

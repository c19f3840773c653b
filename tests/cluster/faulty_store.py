"""A store that loses requests and answers on command, and lets a rival act before any request.

Requests are numbered from 0, in the order in which the operation under test sends them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from cluster.zookeeper.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Listener,
    Node,
    NodeStat,
    Operation,
    OutcomeUnknownError,
    Result,
    Set,
    Store,
)

T = TypeVar("T")

#: A creation and a version of a node: two nodes of one path, one after the other, never share it.
Incarnation = tuple[int, int]
#: Returns the stat of the node at a path as it is now, None if there is none.
Look = Callable[[str], NodeStat | None]


class Loss(Enum):
    """The half of a request that is lost. The client sees the same OutcomeUnknownError for both."""

    REQUEST = "request lost"
    ANSWER = "answer lost"


@dataclass(frozen=True, slots=True)
class BlindWrite:
    """A write to a node that has changed since the operation read it or was notified of it."""

    operation: Operation
    found: Incarnation


class FaultyStore:
    """Implements `Store` over another store, and records the writes made through it.

    losses   the losses, by the number of the request
    rivals   the actions of others right before a request is sent, by its number
    look     reads a node without a request, so that `blind` can be judged; None if the server is a real one
    sent     the number of requests so far
    applied  the writes that the server has made, in order, each transaction as its operations
    blind    those of them that were conditional on nothing that the operation had seen
    owner    a node without which nothing may be written, "" for none
    orphans  the writes that were made although that node did not exist
    """

    def __init__(self, inner: Store, look: Look | None = None) -> None:
        self.losses: Mapping[int, Loss] = {}
        self.rivals: Mapping[int, Callable[[], Awaitable[object]]] = {}
        self.sent = 0
        self.applied: list[Sequence[Operation]] = []
        self.blind: list[BlindWrite] = []
        self.owner = ""
        self.orphans: list[Sequence[Operation]] = []
        self._inner = inner
        self._look = look
        self._seen: dict[str, set[Incarnation]] = {}

    def watch_writes(self, known: Mapping[str, NodeStat]) -> None:
        """Begin a new operation, whose caller knows these nodes."""
        self.sent = 0
        self.applied.clear()
        self.blind.clear()
        self._seen = {path: {_incarnation(stat)} for path, stat in known.items()}

    # --- the session -----------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self._inner.session_id

    @property
    def connected(self) -> bool:
        return self._inner.connected

    @property
    def session_timeout_ms(self) -> int:
        return self._inner.session_timeout_ms

    @property
    def confirmed_at_ms(self) -> int:
        return self._inner.confirmed_at_ms

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        return self._inner.subscribe(listener)

    async def close(self) -> None:
        await self._inner.close()

    # --- requests --------------------------------------------------------------------------------------------

    async def get(self, path: str, *, watch: bool = False) -> Node:
        node = await self._send(lambda: self._inner.get(path, watch=watch))
        self._note(path, node.stat)
        return node

    async def exists(self, path: str, *, watch: bool = False) -> NodeStat | None:
        stat = await self._send(lambda: self._inner.exists(path, watch=watch))
        self._note(path, stat)
        return stat

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        return await self._send(lambda: self._inner.children(path, watch=watch))

    async def sync(self, path: str) -> None:
        await self._send(lambda: self._inner.sync(path))

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, NodeStat]:
        async def write() -> tuple[str, NodeStat]:
            return await self._inner.create(path, data, ephemeral=ephemeral, sequence=sequence)

        return await self._send(lambda: self._write([Create(path, data, ephemeral, sequence)], write))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        write = lambda: self._inner.set(path, data, version)  # noqa: E731
        return await self._send(lambda: self._write([Set(path, data, version)], write))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        write = lambda: self._inner.delete(path, version)  # noqa: E731
        await self._send(lambda: self._write([Delete(path, version)], write))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._send(lambda: self._write(operations, lambda: self._inner.multi(operations)))

    async def _send(self, request: Callable[[], Awaitable[T]]) -> T:
        number = self.sent
        self.sent += 1
        if (rival := self.rivals.get(number)) is not None:
            await rival()
        loss = self.losses.get(number)
        if loss is Loss.REQUEST:
            raise OutcomeUnknownError("the request was lost")
        try:
            return await request()
        finally:
            if loss is Loss.ANSWER:
                raise OutcomeUnknownError("the answer was lost")

    async def _write(self, operations: Sequence[Operation], write: Callable[[], Awaitable[T]]) -> T:
        found = {each.path: self._look(each.path) for each in operations} if self._look else {}
        has_owner = not self.owner or self._look is None or self._look(self.owner) is not None
        answer = await write()
        if not has_owner:
            self.orphans.append(tuple(operations))
        self.applied.append(tuple(operations))
        for operation in operations:
            stat = found.get(operation.path)
            if stat is not None and isinstance(operation, Set | Delete):
                before = _incarnation(stat)
                if before not in self._seen.get(operation.path, ()):
                    self.blind.append(BlindWrite(operation, before))
        for operation in operations:
            if self._look and not isinstance(operation, Check):
                self._note(operation.path, self._look(operation.path))
        return answer

    def _note(self, path: str, stat: NodeStat | None) -> None:
        if stat is not None:
            self._seen.setdefault(path, set()).add(_incarnation(stat))


def _incarnation(stat: NodeStat) -> Incarnation:
    return stat.czxid, stat.version

"""Offsets that groups keep in ZooKeeper, where Kafka 0.8 kept them (commits and fetches of version 0).

`/consumers/G/offsets/T/P` holds only the offset, as a decimal number, without metadata, leader epoch or time. Any
broker writes these nodes, so each node is a register of its own that its version guards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cluster.zookeeper import znodes
from cluster.zookeeper.retrying_store import RetryingStore
from cluster.zookeeper.store import BadVersionError, Node, NodeExistsError, NoNodeError, OutcomeUnknownError, Store
from tidelog.model import TopicPartition

#: The number of nodes that are read and written concurrently, however many a request names.
_AT_ONCE = 100


class ZooKeeperOffsets:
    """Access of one session to `/consumers`. OutcomeUnknownError if ZooKeeper does not answer in time.

    Group ids must be valid for `tidelog.groups.zookeeper_names`, and topics for `validate_topic`.
    """

    def __init__(self, store: Store, retrying: RetryingStore) -> None:
        self._store = store
        self._retrying = retrying
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def commit(self, group_id: str, tp: TopicPartition, offset: int) -> None:
        """Write an offset, and return when it is written.

        The write is repeated only while no other client has written. Otherwise a commit that its client has abandoned
        could undo a later one. OutcomeUnknownError is raised in that case too.
        """
        path, data = znodes.consumer_offset_path(group_id, tp), znodes.encode_consumer_offset(offset)
        async with self._slots, self._retrying.deadline():
            known = await self._retrying.get_or_none(path)
            while True:
                try:
                    if known is not None:
                        await self._store.set(path, data, known.stat.version)
                    else:
                        await self._create(path, data)
                    return
                except (BadVersionError, NoNodeError, NodeExistsError):
                    raise _other_commit() from None
                except OutcomeUnknownError:
                    await self._retrying.pause()
                    found = await self._retrying.get_or_none(path)
                    if _is_written(known, found, data):
                        return

    async def _create(self, path: str, data: bytes) -> None:
        try:
            await self._store.create(path, data)
        except NoNodeError:
            *parents, _ = path.split("/")[1:]
            for depth in range(1, len(parents) + 1):
                await self._retrying.ensure("/" + "/".join(parents[:depth]))
            await self._store.create(path, data)

    async def read(self, group_id: str, tp: TopicPartition) -> int | None:
        """Return the latest committed offset, after a sync, or None if there is none. MalformedZnodeError."""
        path = znodes.consumer_offset_path(group_id, tp)
        async with self._slots:
            await self._up_to_date(path)
            node = await self._retrying.get_or_none(path)
        return None if node is None else znodes.decode_consumer_offset(path, node.data)

    async def partitions(self, group_id: str) -> list[TopicPartition]:
        """Return, sorted, all partitions for which the group has offsets, including those of deleted topics."""
        parent = znodes.consumer_offsets_path(group_id)
        await self._up_to_date(parent)
        topics = await self._children(parent)
        numbers = await asyncio.gather(*(self._children(f"{parent}/{topic}") for topic in topics))
        return sorted(
            TopicPartition(topic, int(number))
            for topic, partitions in zip(topics, numbers, strict=True)
            for number in partitions
            if number.isascii() and number.isdecimal()
        )

    async def groups(self) -> list[str]:
        """Return the groups that have offsets in ZooKeeper."""
        await self._up_to_date(znodes.CONSUMERS)
        names = await self._children(znodes.CONSUMERS)
        topics = await asyncio.gather(*(self._children(znodes.consumer_offsets_path(name)) for name in names))
        return [name for name, found in zip(names, topics, strict=True) if found]

    async def _children(self, path: str) -> Sequence[str]:
        async with self._slots:
            try:
                return await self._retrying.until_answered(lambda: self._store.children(path))
            except NoNodeError:
                return ()

    async def _up_to_date(self, path: str) -> None:
        """Sync, because another broker may have written through a server of the ensemble that is ahead of this one."""
        await self._retrying.until_answered(lambda: self._store.sync(path))


def _is_written(known: Node | None, found: Node | None, data: bytes) -> bool:
    """Return whether a write upon `known`, whose answer was lost, was made. OutcomeUnknownError if that is
    undecidable.
    """
    if (known and known.stat) == (found and found.stat):
        return False
    if found is not None and found.data == data:
        return True
    raise _other_commit()


def _other_commit() -> OutcomeUnknownError:
    return OutcomeUnknownError("another client has committed meanwhile, so the commit may or may not be made")

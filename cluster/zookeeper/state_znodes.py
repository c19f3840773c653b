"""Partition states in ZooKeeper: leader, ISR and epochs of each partition.

A leader's write depends on the version of the state's znode, and a controller's write also on the version of
`/controller_epoch`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain

from cluster.state import NO_VERSION, PartitionState, TopicAssignment, VersionedState, WriteState
from cluster.zookeeper import znodes
from cluster.zookeeper.store import (
    BadVersionError,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    OutcomeUnknownError,
    Set,
    TransactionFailedError,
)
from cluster.zookeeper.topic_znodes import TopicZnodes
from cluster.zookeeper.write_conflicts import StateConflict
from tidelog.model import TopicPartition

log = logging.getLogger(__name__)

#: States per multi. A multi of 50 takes 16 µs for each state, and one of a single state 360 µs. If one state is not the
#: expected one, all of the multi are written again one by one.
STATES_PER_MULTI = 50
#: States that are read at a time, so that the tasks of the reads use little memory, and do not all end in one turn
#: of the event loop.
_CONCURRENT_READS = 500


class StateZnodes(TopicZnodes):
    """Reads and writes partition states; a base class of `ZkClient`, whose docstring explains the errors."""

    async def read_state(self, tp: TopicPartition) -> VersionedState | None:
        """Return a partition's state, or None if there is none. MalformedZnodeError."""
        node = await self._retrying.get_or_none(znodes.state_path(tp))
        if node is None:
            return None
        return VersionedState(znodes.decode_state(node.data), node.stat.version, node.stat.mzxid)

    async def read_states(
        self, tps: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, VersionedState], set[TopicPartition]]:
        """Return the existing states, many read at a time, and the partitions whose state cannot be read."""
        found: dict[TopicPartition, VersionedState] = {}
        unread: set[TopicPartition] = set()

        async def read(tp: TopicPartition) -> None:
            try:
                if (state := await self.read_state(tp)) is not None:
                    found[tp] = state
            except znodes.MalformedZnodeError as error:
                log.error("%s: %s", tp, error)
                unread.add(tp)

        wanted = list(tps)
        for first in range(0, len(wanted), _CONCURRENT_READS):
            await asyncio.gather(*map(read, wanted[first : first + _CONCURRENT_READS]))
        return {tp: found[tp] for tp in wanted if tp in found}, unread

    async def read_topics_with_states(
        self, names: Iterable[str]
    ) -> tuple[dict[str, TopicAssignment], dict[TopicPartition, VersionedState]]:
        """Return the existing topics, and the states of those of their partitions that have one.

        A topic with an unreadable state is left out, because a partition without a state would be created anew.
        """
        topics = await self.read_topics(names)
        states, unread = await self.read_states(tp for topic in topics.values() for tp in topic.topic_partitions())
        for topic in {tp.topic for tp in unread}:
            del topics[topic]
        return topics, {tp: state for tp, state in states.items() if tp.topic in topics}

    async def change_isr(self, tp: TopicPartition, new: PartitionState, partition_epoch: int) -> int:
        """Write a leader's ISR change by compare-and-set; return the new partition_epoch.

        StateConflict carries the state found instead. OutcomeUnknownError means that there was no answer, or that it
        was lost and nothing is written. The larger ISR must go on counting then, and the leader must try again with the
        same partition_epoch if it still wants the change. Only such a leader may try again, because versions start at 0
        in a new topic of the same name.
        """
        data = znodes.encode_state(new)
        return await self._compare_and_set(
            tp, new, partition_epoch, lambda: self._store.set(znodes.state_path(tp), data, partition_epoch), again=False
        )

    async def write_state(self, write: WriteState, epoch_version: int) -> int:
        """Write a controller's state; return the new partition_epoch.

        The write is conditional on the controller epoch and on the state's version. StateConflict, ControllerFenced,
        OutcomeUnknownError.
        """

        async def attempt() -> int:
            try:
                await self._write_or_create(write, epoch_version)
            except TransactionFailedError as error:
                raise error.cause from error
            return write.expected + 1

        return await self._compare_and_set(write.tp, write.state, write.expected, attempt)

    async def write_states(self, writes: Sequence[WriteState], epoch_version: int) -> list[int | StateConflict]:
        """Write a controller's states as `write_state` does, many in one multi; return each new partition_epoch.

        The list has a StateConflict for each refused write. ControllerFenced, OutcomeUnknownError.
        """
        batches = [writes[first : first + STATES_PER_MULTI] for first in range(0, len(writes), STATES_PER_MULTI)]
        found = await asyncio.gather(*(self._write_batch(batch, epoch_version) for batch in batches))
        return list(chain.from_iterable(found))

    async def _write_batch(self, writes: Sequence[WriteState], epoch_version: int) -> list[int | StateConflict]:
        operations = [operation for write in writes for operation in _operations_of(write)]
        try:
            async with self._retrying.deadline():
                await self._fenced(epoch_version, operations)
        except (TransactionFailedError, OutcomeUnknownError):
            # Nothing was written because one operation failed, or the answer was lost. Each state is written alone,
            # because the reads after such a write show its outcome.
            return await asyncio.gather(*(self._write_alone(write, epoch_version) for write in writes))
        return [write.expected + 1 for write in writes]

    async def _write_alone(self, write: WriteState, epoch_version: int) -> int | StateConflict:
        try:
            return await self.write_state(write, epoch_version)
        except StateConflict as conflict:
            return conflict

    async def _write_or_create(self, write: WriteState, epoch_version: int) -> None:
        try:
            await self._fenced(epoch_version, _operations_of(write))
        except TransactionFailedError as error:
            failed_at_parent = write.expected == NO_VERSION and error.index == 1
            if not failed_at_parent or not isinstance(error.cause, NodeExistsError | NoNodeError):
                raise
            if isinstance(error.cause, NoNodeError):  # a topic whose assignment another tool wrote
                await self._retrying.ensure(znodes.partitions_path(write.tp.topic))
                await self._retrying.ensure(znodes.partition_path(write.tp))
            await self._fenced(epoch_version, _operations_of(write)[1:])

    async def _compare_and_set(
        self,
        tp: TopicPartition,
        new: PartitionState,
        expected: int,
        write: Callable[[], Awaitable[int]],
        *,
        again: bool = True,
    ) -> int:
        """Perform `write`; after a conflict or an unknown outcome, decide by the state found whether it was made.

        `again` repeats the write if its outcome is unknown and the old version is still there.
        """
        data = znodes.encode_state(new)
        async with self._retrying.deadline():
            while True:
                unknown: OutcomeUnknownError | None = None
                try:
                    return await write()
                except (BadVersionError, NodeExistsError, NoNodeError):
                    pass
                except OutcomeUnknownError as error:
                    unknown = error
                    await self._retrying.pause()
                actual = await self.read_state(tp)
                found = NO_VERSION if actual is None else actual.partition_epoch
                # The encoded states are compared, because `==` ignores `eligible`.
                if actual is not None and (found, znodes.encode_state(actual.state)) == (expected + 1, data):
                    return expected + 1
                if unknown is None or found != expected:
                    raise StateConflict(tp, actual)
                if not again:
                    raise unknown


def _operations_of(write: WriteState) -> list[Operation]:
    path, data = znodes.state_path(write.tp), znodes.encode_state(write.state)
    if write.expected == NO_VERSION:
        return [Create(znodes.partition_path(write.tp)), Create(path, data)]
    return [Set(path, data, write.expected)]

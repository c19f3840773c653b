"""Topics in ZooKeeper: their assignments and settings, and requests to delete them.

The controller's writes are conditional on `/controller_epoch`; writes of an assignment also on its own version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from cluster.state import TopicAssignment
from cluster.zookeeper import znodes
from cluster.zookeeper.retrying_store import RetryingStore
from cluster.zookeeper.store import (
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    OutcomeUnknownError,
    Set,
    Store,
    TransactionFailedError,
)
from cluster.zookeeper.topic_configs import TopicConfigs
from cluster.zookeeper.write_conflicts import AssignmentConflict, ControllerFenced
from tidelog.model import TopicPartition

log = logging.getLogger(__name__)

#: Partitions per multi. A multi has at most 290 KB, with the longest name of a topic; ZooKeeper's limit is 1 MB.
_REMOVAL_BATCH = 500

#: The index of the settings in the multi that creates a topic; index 0 is the check of the controller's epoch.
_CONFIG_OPERATION = 1


class TopicZnodes:
    """The topic operations of `ZkClient`, whose remarks hold here too."""

    def __init__(self, store: Store, time_limit_ms: int) -> None:
        self._store = store
        self._retrying = RetryingStore(store, time_limit_ms)

    async def topic_names(self, *, watch: bool = False) -> list[str]:
        """Return the names of all topics, sorted. A watch fires when a topic is created or removed."""
        return await self._retrying.until_answered(lambda: self._store.children(znodes.BROKER_TOPICS, watch=watch))

    @property
    def topic_configs(self) -> TopicConfigs:
        """Return access to the topics' settings, which any client may change."""
        return TopicConfigs(self._store, self._retrying)

    async def read_topic(self, topic: str) -> TopicAssignment | None:
        """Return a topic's assignment and settings, or None if there is no such topic or its znodes are unreadable."""
        node, config = await asyncio.gather(
            self._retrying.get_or_none(znodes.topic_path(topic)),
            self._retrying.get_or_none(znodes.topic_config_path(topic)),
        )
        if node is None:
            return None
        try:
            configs = {} if config is None else znodes.decode_topic_config(config.data)
            return znodes.decode_topic(topic, node.data, configs, node.stat.version)
        except znodes.MalformedZnodeError as error:
            log.warning("topic %s: its znodes are unreadable, and it is taken for absent: %s", topic, error)
            return None

    async def read_topics(self, topics: Iterable[str]) -> dict[str, TopicAssignment]:
        """Return the topics that exist and are readable, by name, read concurrently."""
        found = await asyncio.gather(*(self.read_topic(topic) for topic in topics))
        return {assignment.topic: assignment for assignment in found if assignment is not None}

    async def create_topic(self, assignment: TopicAssignment, epoch_version: int) -> bool:
        """Write a topic's assignment and settings in one multi. Return False if the topic exists already.

        Settings of this name that an earlier topic or another tool has left are overwritten. ControllerFenced.
        OutcomeUnknownError if the answer was lost and the topic is not there.
        """
        topic = assignment.topic
        path, config = znodes.topic_config_path(topic), znodes.encode_topic_config(assignment.configs)
        async with self._retrying.deadline():
            while True:
                stale_config = await self._retrying.get_or_none(path)
                operations: list[Operation] = [
                    Set(path, config) if stale_config is not None else Create(path, config),
                    Create(znodes.topic_path(topic), znodes.encode_topic(assignment)),
                    Create(znodes.partitions_path(topic)),
                ]
                try:
                    await self._fenced(epoch_version, operations)
                except TransactionFailedError as error:
                    if error.index != _CONFIG_OPERATION:
                        return False
                    await self._retrying.pause()
                except OutcomeUnknownError:
                    there = await self.read_topic(topic)
                    if there is None or there.topic_id != assignment.topic_id:
                        raise
                    return True
                else:
                    return True

    async def write_assignment(self, assignment: TopicAssignment, epoch_version: int) -> TopicAssignment:
        """Write a topic's replicas on the version that the controller knows; return them with the new version.

        AssignmentConflict carries the assignment found instead. ControllerFenced, OutcomeUnknownError.
        """
        path, data, expected = znodes.topic_path(assignment.topic), znodes.encode_topic(assignment), assignment.version
        async with self._retrying.deadline():
            while True:
                unknown = False
                try:
                    await self._fenced(epoch_version, [Set(path, data, expected)])
                    return replace(assignment, version=expected + 1)
                except TransactionFailedError:
                    pass
                except OutcomeUnknownError:
                    unknown = True
                    await self._retrying.pause()
                actual = await self.read_topic(assignment.topic)
                if actual is not None and (actual.version, znodes.encode_topic(actual)) == (expected + 1, data):
                    return actual
                if not (unknown and actual is not None and actual.version == expected):
                    raise AssignmentConflict(assignment.topic, actual)

    async def topics_to_delete(self, *, watch: bool = False) -> list[str]:
        """Return the topics with a request to delete them. A watch fires when a request is made or removed."""
        return await self._retrying.until_answered(lambda: self._store.children(znodes.DELETE_TOPICS, watch=watch))

    async def existing_topics(self) -> set[str]:
        """Return the topics that existed at the time of the call, by whichever client created, except those being
        deleted.

        Deletion requests are read before the topics. In the other order, a topic whose deletion ends between the two
        reads would be returned. A topic with a request is left out, even if the deletion ends and a new topic of that
        name is created during the call.
        """
        await self._retrying.until_answered(lambda: self._store.sync(znodes.BROKER_TOPICS))
        going = await self.topics_to_delete()
        return set(await self.topic_names()).difference(going)

    async def request_deletion(self, topic: str, epoch_version: int) -> None:
        """Write the controller's request to delete a topic, so that the next controller knows it too.

        Do nothing if the request exists. ControllerFenced: the write is conditional on the controller epoch, because a
        late request would delete the next topic of that name.
        """
        request = Create(znodes.delete_topic_path(topic))
        try:
            await self._retrying.until_answered(lambda: self._fenced(epoch_version, [request]))
        except TransactionFailedError as error:
            if not isinstance(error.cause, NodeExistsError):
                raise

    async def remove_some(self, topic: str, epoch_version: int) -> bool:
        """Remove as much of a topic as one multi takes. Return False if nothing of the topic is left. ControllerFenced.

        The deletion request is removed last, so that after a failure the next controller finds the rest.
        """
        only_existing = False  # the first attempt assumes that all znodes exist, because to read them takes longest
        async with self._retrying.deadline():
            while True:
                operations, more = await self._removal(topic, only_existing=only_existing)
                if not operations:
                    return False
                try:
                    await self._fenced(epoch_version, operations)
                    return more
                except (TransactionFailedError, OutcomeUnknownError):
                    if only_existing:
                        await self._retrying.pause()
                    only_existing = True

    async def _removal(self, topic: str, *, only_existing: bool) -> tuple[list[Operation], bool]:
        """Return the operations that remove the next partitions, and whether more are left.

        The operations of the last partitions also remove everything else of the topic. Nodes that do not exist, for
        example of a partition that never had a state, are left out only with `only_existing`.
        """
        parent = znodes.partitions_path(topic)
        try:
            numbers = await self._retrying.until_answered(lambda: self._store.children(parent))
        except NoNodeError:
            numbers = []
        tps = [TopicPartition(topic, int(number)) for number in numbers[:_REMOVAL_BATCH]]
        paths = [path for tp in tps for path in (znodes.state_path(tp), znodes.partition_path(tp))]
        more = len(tps) < len(numbers)
        if not more:
            paths += parent, znodes.topic_path(topic), znodes.topic_config_path(topic), znodes.delete_topic_path(topic)
        if only_existing:
            stats = await asyncio.gather(
                *(self._retrying.until_answered(partial(self._store.exists, path)) for path in paths)
            )
            paths = [path for path, stat in zip(paths, stats, strict=True) if stat is not None]
        removal: list[Operation] = [Delete(path) for path in paths]
        if removal and not more:
            removal.append(Set(znodes.CONFIG_TOPICS, b""))  # counts the removal, see `cluster.zookeeper.topic_configs`
        return removal, more

    async def _fenced(self, epoch_version: int, operations: Sequence[Operation]) -> None:
        """Perform a controller's multi. ControllerFenced if the controller epoch has another version.

        Indices in TransactionFailedError count from the check of the controller epoch.
        """
        try:
            await self._store.multi([Check(znodes.CONTROLLER_EPOCH, epoch_version), *operations])
        except TransactionFailedError as error:
            if error.index == 0:
                raise ControllerFenced(
                    f"/controller_epoch no longer has version {epoch_version}: another controller was elected"
                ) from error
            raise

"""The topic `__consumer_offsets`: its number of partitions, and its creation when the first group needs it.

The number of partitions is read from ZooKeeper once, and is never derived from the controller's messages, which may be
incomplete. With a wrong number, a group would be looked for in the wrong partition, and would lose its offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from cluster.state import TopicAssignment
from cluster.zookeeper.store import StoreError
from node.metadata.internal_topics import InternalTopicRules
from node.settings.broker_settings import BrokerSettings
from tidelog.clock import Clock
from tidelog.errors import TidelogError, TopicAlreadyExistsError, error_for
from tidelog.groups.offsets_topic import OFFSETS_TOPIC, partition_for
from tidelog.protocol.messages import CreateTopicsRequest, CreateTopicsResponse, NewTopic

log = logging.getLogger(__name__)

CREATION_TIMEOUT_MS = 30_000
#: The least time between two attempts to find the topic.
RETRY_MS = 500

#: Sends the request to the controller, which may run in this process.
CreateTopics = Callable[[CreateTopicsRequest], Awaitable[CreateTopicsResponse]]


class Assignments(Protocol):
    """The part of `cluster.zookeeper.client.ZkClient` that this module needs."""

    async def read_topic(self, topic: str) -> TopicAssignment | None: ...
    async def existing_topics(self) -> set[str]: ...


class OffsetsTopic:
    """The number of partitions of the topic, once ZooKeeper was read; it decides each group's coordinator.

    The number stays the same until the topic is deleted.
    """

    def __init__(
        self, settings: BrokerSettings, assignments: Assignments, create_topics: CreateTopics, clock: Clock
    ) -> None:
        self._settings = settings
        self._assignments = assignments
        self._create_topics = create_topics
        self._clock = clock
        self._partitions = 0
        self._topic_id = ""
        self._looking: asyncio.Task[None] | None = None
        self._next_look_ms = 0

    def partition_of(self, group_id: str, *, create: bool = False) -> int | None:
        """Return the partition of the group, or None if the number of partitions is not known yet.

        In the latter case a read from ZooKeeper is started, as by `look`. `create`: that read also creates the topic if
        it does not exist.
        """
        if not self._partitions:
            self.look(create=create)
            return None
        return partition_for(group_id, self._partitions)

    def hosted(self, topic_id: str) -> None:
        """Record the id of the topic, as `reported` does, because this broker hosts a replica; then call `look`."""
        self.reported(topic_id)
        self.look()

    def reported(self, topic_id: str) -> None:
        """Record the topic id that the controller has sent. If it has changed, forget the number of partitions.

        A look-up in progress may still find the old topic, because ZooKeeper has it until its deletion is complete.
        """
        if topic_id != self._topic_id:
            self._partitions, self._topic_id = 0, topic_id

    def forget(self) -> None:
        """Forget the topic after its deletion. A new topic may have another number of partitions."""
        self.reported("")

    def close(self) -> None:
        """Cancel the look-up in progress."""
        if self._looking is not None:
            self._looking.cancel()

    def look(self, *, create: bool = False) -> None:
        """Start to read the number of partitions from ZooKeeper if it is not known; return at once.

        Do nothing while a look-up runs, or within RETRY_MS of the last. `create`: create a missing topic.
        """
        if self._partitions:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_look_ms and (self._looking is None or self._looking.done()):
            self._next_look_ms = now_ms + RETRY_MS
            self._looking = asyncio.get_running_loop().create_task(self._find(create))

    async def _find(self, create: bool) -> None:
        try:
            found = await self._assignments.read_topic(OFFSETS_TOPIC)
            if found is None and create:
                await self._create()
                found = await self._assignments.read_topic(OFFSETS_TOPIC)
        except (TidelogError, StoreError) as error:
            log.warning("topic %r cannot be read or created yet: %s", OFFSETS_TOPIC, error)
            return
        if found is not None and self._topic_id in ("", found.topic_id):
            self._partitions, self._topic_id = len(found.partitions), found.topic_id

    async def _create(self) -> None:
        settings = self._settings
        new = NewTopic(
            OFFSETS_TOPIC,
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
            configs=InternalTopicRules.of(settings).creation_configs(),
        )
        response = await self._create_topics(CreateTopicsRequest((new,), CREATION_TIMEOUT_MS))
        created = response.topics[0]
        if error := error_for(created.error_code, created.error_message or ""):
            if not isinstance(error, TopicAlreadyExistsError):
                raise error
        else:
            log.info("created %s with %d partitions", OFFSETS_TOPIC, settings.offsets_topic_num_partitions)

"""`__consumer_offsets` itself: how many partitions it has, and that it comes to be when somebody needs it.

How many is read from ZooKeeper once, and never guessed from what a controller has told so far: a group that is looked
for in the wrong partition has lost what it committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from cluster.state import TopicAssignment
from cluster.zookeeper.store import StoreError
from node.internal_topics import InternalTopicRules
from node.settings import BrokerSettings
from tidelog.clock import Clock
from tidelog.errors import TidelogError, TopicAlreadyExistsError, error_for
from tidelog.groups.offsets_topic import OFFSETS_TOPIC, partition_for
from tidelog.protocol.messages import CreateTopicsRequest, CreateTopicsResponse, NewTopic

log = logging.getLogger(__name__)

CREATION_TIMEOUT_MS = 30_000
#: After an attempt that failed.
RETRY_MS = 500

#: Asks the controller, wherever it is.
CreateTopics = Callable[[CreateTopicsRequest], Awaitable[CreateTopicsResponse]]


class Assignments(Protocol):
    """What is needed of `cluster.zk_client.ZkClient`."""

    async def read_topic(self, topic: str) -> TopicAssignment | None: ...
    async def existing_topics(self) -> set[str]: ...


class OffsetsTopic:
    """What is known of it. Its partitions may not become more: groups would be looked for elsewhere."""

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
        """Where the group is kept; None where that is not known yet, and is found out now.

        create   have the topic made where there is none
        """
        if not self._partitions:
            self.look(create=create)
            return None
        return partition_for(group_id, self._partitions)

    def hosted(self, topic_id: str) -> None:
        """This broker has a replica of it."""
        self.told(topic_id)
        self.look()

    def told(self, topic_id: str) -> None:
        """The controller names it; of another id than was known, it was deleted and made anew meanwhile.

        What a look-up that is under way finds may still be the old one, and ZooKeeper has that until it is all gone.
        """
        if topic_id != self._topic_id:
            self._partitions, self._topic_id = 0, topic_id

    def forget(self) -> None:
        """It was deleted; it may come again, and otherwise."""
        self.told("")

    def close(self) -> None:
        """Nothing is asked any more."""
        if self._looking is not None:
            self._looking.cancel()

    def look(self, *, create: bool = False) -> None:
        """Begin to find out what is not known; returns at once."""
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
            log.warning("%s cannot be had yet: %s", OFFSETS_TOPIC, error)
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
        if refusal := error_for(created.error_code, created.error_message or ""):
            if not isinstance(refusal, TopicAlreadyExistsError):
                raise refusal
        else:
            log.info("created %s with %d partitions", OFFSETS_TOPIC, settings.offsets_topic_num_partitions)

"""The group coordinator with all its parts, as one part of a broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine

from node.groups.coordinator import GroupCoordinator
from node.groups.deletion import Deletion
from node.groups.expiry import Expiry
from node.groups.member_requests import MemberRequests
from node.groups.offset_commits import OffsetCommits
from node.groups.offsets_topic import Assignments, CreateTopics, OffsetsTopic
from node.groups.shard import Shard
from node.replication.replica_manager import ReplicaManager
from node.settings.broker_settings import BrokerSettings
from tidelog.groups.offsets_topic import OFFSETS_TOPIC


class CoordinatorService:
    """Creates and connects the parts of the coordinator, and owns their tasks.

    Create it before the first replica gets a role; then call `start`, `tick` regularly, and `stop`.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        settings: BrokerSettings,
        assignments: Assignments,
        create_topics: CreateTopics,
        may_be_deposed: Callable[[], bool],
        rng: random.Random,
    ) -> None:
        self.topic = OffsetsTopic(settings, assignments, create_topics, replicas.clock)
        self.coordinator = GroupCoordinator(replicas, self.topic, settings, may_be_deposed, self._shard_loaded)
        self.members = MemberRequests(self.coordinator, rng)
        self.offsets = OffsetCommits(self.coordinator)
        self.deletion = Deletion(self.coordinator, self.offsets)
        self._expiry = Expiry(self.coordinator, self.offsets, assignments)
        self._tasks: set[asyncio.Task[None]] = set()
        replicas.metadata.subscribe(on_deleted=self._topics_deleted, on_named=self._topic_named)

    @property
    def expired(self) -> int:
        """Return the number of offsets that have expired, and were deleted, since the start."""
        return self._expiry.expired

    def start(self) -> None:
        """Start the periodic expiry of offsets."""
        self._spawn(self._expiry.run())

    def tick(self, now_ms: int) -> int | None:
        """Run the timers that are due, and return when to call `tick` again (monotonic; None: no timer is set).

        If the replicas' alarm is set earlier, the caller calls `tick` then.
        """
        return self.coordinator.tick(now_ms)

    def stop(self) -> None:
        """Cancel all tasks of the coordinator, also loads and the look-up of the topic. Return at once."""
        for task in self._tasks:
            task.cancel()
        self.coordinator.close()

    def _shard_loaded(self, shard: Shard) -> None:
        self._spawn(self._expiry.find_deleted_topics(shard))

    def _topics_deleted(self, topics: tuple[str, ...]) -> None:
        if OFFSETS_TOPIC in topics:
            self.topic.forget()
        self._expiry.topics_deleted(topics)
        self._spawn(self._expiry.forget_all_deleted())

    def _topic_named(self, topic: str, topic_id: str) -> None:
        if topic == OFFSETS_TOPIC:
            self.topic.reported(topic_id)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

"""`__consumer_offsets` for clusters of tests, with one partition that is created on demand."""

from __future__ import annotations

from typing import Any

from cluster.state import TopicAssignment
from tidelog.errors import CoordinatorNotAvailableError
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import TopicPartition
from tidelog.protocol.messages import CreateTopicsRequest, CreateTopicsResponse

OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


class MemoryOffsetsTopic:
    """The part of ZooKeeper with the topic's assignment, and the names of all topics."""

    async def read_topic(self, topic: str) -> TopicAssignment | None:
        return TopicAssignment(topic, "topic-id-1", {0: (1, 2, 3)})

    async def existing_topics(self) -> set[str]:
        return {"t", OFFSETS_TOPIC}

    async def create(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        raise CoordinatorNotAvailableError("the test elects")


class NoZooKeeperOffsets:
    async def commit(self, request: Any, context: Any) -> Any:
        raise CoordinatorNotAvailableError("there is no ZooKeeper")

    async def fetch(self, request: Any, context: Any) -> Any:
        raise CoordinatorNotAvailableError("there is no ZooKeeper")

    async def list_groups(self, context: Any) -> Any:
        raise CoordinatorNotAvailableError("there is no ZooKeeper")

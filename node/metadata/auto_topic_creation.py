"""Creation of topics that a client's metadata request names (`auto_create_topics_enable`).

As in Kafka, the response to such a request does not wait for the topic. The response has LEADER_NOT_AVAILABLE for the
topic, and clients repeat the request soon. A broker asks for the same topic once at a time, and the controller creates
each topic once, whichever brokers ask for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from node.metadata.internal_topics import is_internal
from node.metadata.metadata_cache import MetadataCache
from node.settings.broker_settings import BrokerSettings
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    LeaderNotAvailableError,
    TidelogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_for,
)
from tidelog.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
    NewTopic,
    TopicMetadata,
)

log = logging.getLogger(__name__)

CREATION_TIMEOUT_MS = 30_000
#: The least time between the end of a failed creation and the next one of the same topic.
RETRY_MS = 500
#: The most topics that are created at the same time, and the most failures that are remembered.
MAX_TOPICS = 1000

#: Sends the request to the controller, which may run in this process.
CreateTopics = Callable[[CreateTopicsRequest], Awaitable[CreateTopicsResponse]]


class AutoTopicCreation:
    """Answers metadata requests, and creates the missing topics of those that allow it."""

    def __init__(
        self, settings: BrokerSettings, metadata: MetadataCache, create_topics: CreateTopics, clock: Clock
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._create_topics = create_topics
        self._clock = clock
        self._in_progress: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        #: By topic: the error code that clients get, and the time until which no further creation is tried.
        self._failures: dict[str, tuple[int, int]] = {}

    def describe(self, request: MetadataRequest, listener: str) -> MetadataResponse:
        """Return the metadata; start to create missing topics if the broker's settings and the request allow it.

        Each such topic has LEADER_NOT_AVAILABLE in the response, also if it must wait because MAX_TOPICS are being
        created. For RETRY_MS after a failed creation no other one is
        started, and the topic has the error code of the failure if that is not retriable. Internal topics are not
        created.
        """
        response = self._metadata.describe(request.topics, listener)
        if not (self._settings.auto_create_topics_enable and request.allow_auto_topic_creation):
            return response
        missing = [topic.name for topic in response.topics if _is_creatable(topic)]
        if not missing:
            return response
        codes = self._start(missing)
        topics = tuple(
            replace(topic, error_code=codes[topic.name]) if topic.name in codes else topic for topic in response.topics
        )
        return replace(response, topics=topics)

    def close(self) -> None:
        """Stop waiting for the controller, which may still create the topics."""
        for task in self._tasks:
            task.cancel()

    def _start(self, names: list[str]) -> Mapping[str, int]:
        """Start to create the topics that are not being created and have not just failed; return all error codes."""
        now_ms = self._clock.monotonic_ms()
        codes = dict.fromkeys(names, LeaderNotAvailableError.code)
        wanted: list[str] = []
        for name in names:
            code, until_ms = self._failures.get(name, (0, now_ms))
            if now_ms < until_ms:
                codes[name] = code
            elif name not in self._in_progress and len(self._in_progress) < MAX_TOPICS:
                self._in_progress.add(name)
                wanted.append(name)
        if wanted:
            task = asyncio.get_running_loop().create_task(self._create(wanted))
            self._tasks.add(task)  # the event loop alone does not keep a task alive
            task.add_done_callback(self._tasks.discard)
        return codes

    async def _create(self, names: list[str]) -> None:
        settings = self._settings
        new = tuple(NewTopic(name, settings.num_partitions, settings.default_replication_factor) for name in names)
        try:
            response = await self._create_topics(CreateTopicsRequest(new, CREATION_TIMEOUT_MS))
            errors: dict[str, BrokerError | None] = {
                each.name: error_for(each.error_code, each.error_message or "") for each in response.topics
            }
        except TidelogError as failure:
            errors = dict.fromkeys(names, LeaderNotAvailableError(str(failure)))
        finally:
            self._in_progress.difference_update(names)
        for name, error in errors.items():
            self._ended(name, error)

    def _ended(self, name: str, error: BrokerError | None) -> None:
        self._failures.pop(name, None)
        if error is None:
            log.info("created topic %r, because a client asked for it", name)
        elif not isinstance(error, TopicAlreadyExistsError):
            log.warning("topic %r, which a client asked for, is not created: %s", name, error)
            if len(self._failures) >= MAX_TOPICS:
                self._failures.clear()
            code = LeaderNotAvailableError.code if error.retriable else error.code
            self._failures[name] = (code, self._clock.monotonic_ms() + RETRY_MS)


def _is_creatable(topic: TopicMetadata) -> bool:
    return topic.error_code == UnknownTopicOrPartitionError.code and not is_internal(topic.name)

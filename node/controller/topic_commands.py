"""What clients ask the controller to do with topics: create and delete them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from node.controller.command_errors import FAILURES, refusal
from node.controller.controller_term import ControllerTerm
from node.controller.topic_validation import plan_topic
from node.internal_topics import InternalTopicRules, check_deletion
from node.net.server import due_in
from node.runtime.lock_with_deadline import raise_if_over, turn
from node.settings import BrokerSettings
from tidelog.clock import Clock
from tidelog.errors import (
    InvalidRequestError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.messages import (
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
)


class TopicCommands:
    """Where this broker does not hold the seat, each topic is answered with NOT_CONTROLLER.

    reign    the reign of now; raises NotControllerError
    source   chooses where the placing of replicas begins
    """

    def __init__(
        self, term: Callable[[], ControllerTerm], settings: BrokerSettings, clock: Clock, source: random.Random
    ) -> None:
        self._term = term
        self._settings = settings
        self._clock = clock
        self._source = source

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Answers when every partition of the new topics has a leader that knows, or when the time is over."""
        deadline_ms = due_in(self._clock.monotonic_ms(), request.timeout_ms)
        named = Counter(new.name for new in request.topics)
        outcomes: list[CreatedTopic] = []
        pending: list[TopicPartition] = []
        term: ControllerTerm | None = None
        for number, new in enumerate(request.topics):
            try:
                if named[new.name] > 1:
                    raise InvalidRequestError(f"the request names topic {new.name!r} twice")
                if number:
                    raise_if_over(self._clock, deadline_ms)
                term = self._term()
                outcome = await self._create(term, new, request.validate_only, deadline_ms)
                if not request.validate_only:
                    pending += [TopicPartition(new.name, partition) for partition in range(outcome.num_partitions)]
            except FAILURES as error:
                refused = refusal(error)
                outcome = CreatedTopic(new.name, refused.code, str(refused))
            outcomes.append(outcome)
        if pending and term is not None:
            await term.until_led(pending, deadline_ms)
            unled = {tp.topic for tp in pending if not term.is_led(tp)}
            outcomes = [_judge(outcome, unled) for outcome in outcomes]
            if not unled:
                await term.until_told(deadline_ms)
        return CreateTopicsResponse(tuple(outcomes))

    async def _create(self, term: ControllerTerm, new: NewTopic, validate_only: bool, deadline_ms: int) -> CreatedTopic:
        async with turn(term.topics_lock, self._clock, deadline_ms):
            assignment = plan_topic(
                new,
                existing=term.controller.topics,
                brokers=term.controller.brokers.keys() - term.controller.shutting_down,
                num_partitions=self._settings.num_partitions,
                replication_factor=self._settings.default_replication_factor,
                defaults=self._settings.topic_defaults,
                internal=InternalTopicRules.of(self._settings),
                source=self._source,
            )
            if not validate_only and not await term.create_topic(assignment):
                raise TopicAlreadyExistsError(f"topic {new.name!r} exists")
        topic_id = "" if validate_only else assignment.topic_id
        return CreatedTopic(new.name, 0, None, topic_id, len(assignment.partitions), len(assignment.partitions[0]))

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Answers when the topics are gone from every live broker and from ZooKeeper, or when the time is over."""
        deadline_ms = due_in(self._clock.monotonic_ms(), request.timeout_ms)
        outcomes: dict[str, DeletedTopic] = {}
        term: ControllerTerm | None = None
        for number, topic in enumerate(request.topics):
            try:
                if number:
                    raise_if_over(self._clock, deadline_ms)
                term = self._term()
                check_deletion(topic)
                async with turn(term.topics_lock, self._clock, deadline_ms):
                    if topic not in term.controller.topics:
                        raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
                    await term.delete_topic(topic)
                outcomes[topic] = DeletedTopic(topic, 0)
            except FAILURES as error:
                refused = refusal(error)
                outcomes.setdefault(topic, DeletedTopic(topic, refused.code, str(refused)))
        going = {topic for topic, outcome in outcomes.items() if not outcome.error_code}
        if going and term is not None:
            topics = term.controller.topics
            await term.until(lambda: going.isdisjoint(topics), deadline_ms)
            for topic in going & topics.keys():
                message = f"topic {topic!r} is being deleted, but some brokers have not answered yet"
                outcomes[topic] = DeletedTopic(topic, RequestTimedOutError.code, message)
            if going.isdisjoint(topics):
                await term.until_told(deadline_ms)
        return DeleteTopicsResponse(tuple(outcomes[topic] for topic in request.topics))


def _judge(outcome: CreatedTopic, unled: set[str]) -> CreatedTopic:
    if outcome.error_code or outcome.name not in unled:
        return outcome
    message = f"topic {outcome.name!r} is created, but not all of its partitions have a leader yet"
    return CreatedTopic(outcome.name, RequestTimedOutError.code, message, outcome.topic_id)

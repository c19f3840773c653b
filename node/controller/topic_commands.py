"""Commands of clients on topics: create and delete them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Set

from cluster.controller.replicas.capacity import BrokerCapacity
from cluster.state import TopicAssignment
from node.controller.command_errors import COMMAND_ERRORS, broker_error_of
from node.controller.controller_term import ControllerTerm
from node.controller.topic_validation import plan_topic, plan_within
from node.metadata.internal_topics import InternalTopicRules, check_deletion, is_internal
from node.net.server import due_in
from node.runtime.lock_with_deadline import lock_until, raise_if_over
from node.settings.broker_settings import BrokerSettings
from tidelog.clock import Clock
from tidelog.errors import (
    InvalidRequestError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
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
    """Creates and deletes topics. Each topic is answered with NOT_CONTROLLER if this broker is not the controller.

    term   returns the current ControllerTerm, or raises NotControllerError
    rng    chooses topic ids, and the broker at which the placement of replicas begins
    most   returns how many partitions each broker may hold
    """

    def __init__(
        self,
        term: Callable[[], ControllerTerm],
        settings: BrokerSettings,
        clock: Clock,
        rng: random.Random,
        most: Callable[[], int],
    ) -> None:
        self._term = term
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._most = most

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Create the topics, or only check them if the request says so; return one outcome per topic, in their order.

        The answer waits until each new partition has a leader that has confirmed, or until the deadline. A topic that
        was created and is not fully led by then gets REQUEST_TIMED_OUT. A topic that is named twice is not created.
        """
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
            except COMMAND_ERRORS as error:
                refused = broker_error_of(error)
                outcome = CreatedTopic(new.name, refused.code, str(refused))
            outcomes.append(outcome)
        if pending and term is not None:
            await term.wait_until_led(pending, deadline_ms)
            unled = {tp.topic for tp in pending if not term.is_led(tp)}
            outcomes = [_timed_out_if_unled(outcome, unled) for outcome in outcomes]
            if not unled:
                await term.wait_until_propagated(deadline_ms)
        return CreateTopicsResponse(tuple(outcomes))

    async def _create(self, term: ControllerTerm, new: NewTopic, validate_only: bool, deadline_ms: int) -> CreatedTopic:
        async with lock_until(term.topics_lock, self._clock, deadline_ms):
            context = term.controller.context

            def plan(brokers: Set[int]) -> TopicAssignment:
                return plan_topic(
                    new,
                    existing=context.topics,
                    brokers=brokers,
                    num_partitions=self._settings.num_partitions,
                    replication_factor=self._settings.default_replication_factor,
                    defaults=self._settings.topic_defaults,
                    internal=InternalTopicRules.of(self._settings),
                    rng=self._rng,
                    load=context.load(),
                    racks=context.racks(),
                )

            live = context.brokers.keys() - context.shutting_down
            capacity = BrokerCapacity(context.held_partitions(), self._most())
            assignment = plan(live) if is_internal(new.name) else plan_within(capacity, new.name, live, plan)
            if not validate_only and not await term.create_topic(assignment):
                raise TopicAlreadyExistsError(f"topic {new.name!r} already exists")
        topic_id = "" if validate_only else assignment.topic_id
        return CreatedTopic(new.name, 0, None, topic_id, len(assignment.partitions), len(assignment.partitions[0]))

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Begin to delete the topics, and return one outcome per topic, in the given order.

        The answer waits until the live brokers have deleted their replicas and ZooKeeper no longer has the topics, or
        until the deadline. A topic that still exists by then gets REQUEST_TIMED_OUT, and its deletion goes on. A topic
        whose id is not the one in the request gets UNKNOWN_TOPIC_ID.
        """
        deadline_ms = due_in(self._clock.monotonic_ms(), request.timeout_ms)
        ids = request.topic_ids or {}
        outcomes: dict[str, DeletedTopic] = {}
        term: ControllerTerm | None = None
        for number, topic in enumerate(request.topics):
            try:
                if number:
                    raise_if_over(self._clock, deadline_ms)
                term = self._term()
                check_deletion(topic)
                async with lock_until(term.topics_lock, self._clock, deadline_ms):
                    known = term.controller.context.topics.get(topic)
                    if topic in ids and (known is None or known.topic_id != ids[topic]):
                        raise UnknownTopicIdError(f"no topic has the id {ids[topic]} any more")
                    if known is None:
                        raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
                    await term.delete_topic(topic)
                outcomes[topic] = DeletedTopic(topic, 0)
            except COMMAND_ERRORS as error:
                refused = broker_error_of(error)
                outcomes.setdefault(topic, DeletedTopic(topic, refused.code, str(refused)))
        deleting = {topic for topic, outcome in outcomes.items() if not outcome.error_code}
        if deleting and term is not None:
            topics = term.controller.context.topics
            await term.wait_until(lambda: deleting.isdisjoint(topics), deadline_ms)
            for topic in deleting & topics.keys():
                message = f"topic {topic!r} is being deleted, but some brokers have not answered yet"
                outcomes[topic] = DeletedTopic(topic, RequestTimedOutError.code, message)
            if deleting.isdisjoint(topics):
                await term.wait_until_propagated(deadline_ms)
        return DeleteTopicsResponse(tuple(outcomes[topic] for topic in request.topics))


def _timed_out_if_unled(outcome: CreatedTopic, unled: set[str]) -> CreatedTopic:
    if outcome.error_code or outcome.name not in unled:
        return outcome
    message = f"topic {outcome.name!r} is created, but not all of its partitions have a leader yet"
    return CreatedTopic(outcome.name, RequestTimedOutError.code, message, outcome.topic_id)

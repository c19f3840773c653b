"""What clients ask the controller to do with partitions: add some, elect leaders, move replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from node.controller.command_errors import FAILURES, refusal
from node.controller.controller_term import ControllerTerm
from node.controller.topic_validation import plan_partitions, plan_reassignment
from node.internal_topics import InternalTopicRules
from node.net.server import due_in
from node.runtime.lock_with_deadline import raise_if_over, turn
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    ElectionNotNeededError,
    InvalidRequestError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.messages import DescribePartition
from tidelog.protocol.partition_messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ExtendedTopic,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    NewPartitions,
    PartitionReassignment,
    PartitionResult,
    WantedReplicas,
)


class PartitionCommands:
    """Each raises NotControllerError where this broker does not hold the seat.

    reign      the reign of now; raises NotControllerError
    internal   the limits for reassignments of internal topics
    """

    def __init__(self, term: Callable[[], ControllerTerm], internal: InternalTopicRules, clock: Clock) -> None:
        self._term = term
        self._internal = internal
        self._clock = clock

    # --- more partitions -----------------------------------------------------------------------------

    async def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """Answers when every new partition has a leader that knows, or when the time is over."""
        term = self._term()
        deadline_ms = due_in(self._clock.monotonic_ms(), request.timeout_ms)
        named = Counter(new.name for new in request.topics)
        outcomes: dict[str, ExtendedTopic] = {}
        pending: list[TopicPartition] = []
        for number, new in enumerate(request.topics):
            try:
                if named[new.name] > 1:
                    raise InvalidRequestError(f"the request names topic {new.name!r} twice")
                if number:
                    raise_if_over(self._clock, deadline_ms)
                pending += await self._extend(term, new, request.validate_only, deadline_ms)
                outcomes[new.name] = ExtendedTopic(new.name, 0)
            except FAILURES as error:
                refused = refusal(error)
                outcomes[new.name] = ExtendedTopic(new.name, refused.code, str(refused))
        if pending:
            await term.until_led(pending, deadline_ms)
            for topic in {tp.topic for tp in pending if not term.is_led(tp)}:
                message = f"partitions were added to {topic!r}, but not all of them have a leader yet"
                outcomes[topic] = ExtendedTopic(topic, RequestTimedOutError.code, message)
            await term.until_told(deadline_ms)
        return CreatePartitionsResponse(tuple(outcomes[new.name] for new in request.topics))

    async def _extend(
        self, term: ControllerTerm, new: NewPartitions, validate_only: bool, deadline_ms: int
    ) -> list[TopicPartition]:
        controller = term.controller
        async with turn(term.topics_lock, self._clock, deadline_ms):
            while True:
                before = controller.topics.get(new.name)
                if before is None or controller.replica_deletion.is_deleting(new.name):
                    raise UnknownTopicOrPartitionError(f"topic {new.name!r} does not exist")
                wanted = plan_partitions(new, before, controller.brokers.keys() - controller.shutting_down)
                if validate_only:
                    return []
                if await term.change_assignment(wanted):
                    return sorted(set(wanted.topic_partitions()) - set(before.topic_partitions()))
                self._raise_if_over(deadline_ms)

    # --- elections -----------------------------------------------------------------------------------

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Answers when each election has taken place, or why it has not."""
        term = self._term()
        controller = term.controller
        deadline_ms = due_in(self._clock.monotonic_ms(), request.timeout_ms)
        if request.election_type not in list(ElectionType):
            raise InvalidRequestError(f"there is no election of type {request.election_type}")
        unclean = request.election_type == ElectionType.UNCLEAN
        tps = controller.partitions() if request.partitions is None else _named(request.partitions)
        results: dict[TopicPartition, BrokerError | None] = {}
        elected: list[TopicPartition] = []
        for tp in tps:
            if tp not in controller.states or controller.replica_deletion.is_deleting(tp.topic):
                results[tp] = UnknownTopicOrPartitionError(f"{tp} does not exist")
            elif (refusal := controller.election_refusal(tp, unclean=unclean)) and not controller.election_in_progress(
                tp
            ):
                results[tp] = refusal
            else:
                elected.append(tp)
        term.perform(controller.elections_wanted(elected, unclean=unclean))

        def over() -> bool:
            return not any(controller.election_in_progress(tp) for tp in elected) and all(map(term.is_led, elected))

        await term.until(over, deadline_ms)
        for tp in elected:
            results[tp] = self._verdict(term, tp, unclean=unclean)
        await term.until_told(deadline_ms)
        return ElectLeadersResponse(
            tuple(
                _result(tp, error)
                for tp, error in results.items()
                if request.partitions is not None or not isinstance(error, ElectionNotNeededError)
            )
        )

    @staticmethod
    def _verdict(term: ControllerTerm, tp: TopicPartition, *, unclean: bool) -> BrokerError | None:
        controller = term.controller
        if tp not in controller.states:
            return UnknownTopicOrPartitionError(f"{tp} does not exist any more")
        if not controller.election_in_progress(tp):
            refusal = controller.election_refusal(tp, unclean=unclean)
            if refusal is not None and not isinstance(refusal, ElectionNotNeededError):
                return refusal
            if term.is_led(tp):
                return None
        return RequestTimedOutError(f"{tp}: the election is under way, but its leader has not answered yet")

    # --- reassignments -------------------------------------------------------------------------------

    async def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Answers when they are written down."""
        term = self._term()
        deadline_ms = due_in(self._clock.monotonic_ms(), request.timeout_ms)
        by_topic: dict[str, list[WantedReplicas]] = {}
        for wanted in request.partitions:
            by_topic.setdefault(wanted.topic, []).append(wanted)
        results: dict[TopicPartition, BrokerError | None] = {}
        for number, (topic, requested_elections) in enumerate(by_topic.items()):
            tps = [TopicPartition(topic, wanted.partition) for wanted in requested_elections]
            try:
                if len(set(tps)) < len(tps):
                    raise InvalidRequestError(f"the request names a partition of topic {topic!r} twice")
                if number:
                    raise_if_over(self._clock, deadline_ms)
                results |= await self._reassign(term, topic, requested_elections, deadline_ms)
            except FAILURES as error:
                results |= dict.fromkeys(tps, refusal(error))
        asked = (TopicPartition(each.topic, each.partition) for each in request.partitions)
        return AlterPartitionReassignmentsResponse(tuple(_result(tp, results[tp]) for tp in asked))

    async def _reassign(
        self, term: ControllerTerm, topic: str, requested_elections: list[WantedReplicas], deadline_ms: int
    ) -> dict[TopicPartition, BrokerError | None]:
        controller = term.controller
        async with turn(term.topics_lock, self._clock, deadline_ms):
            while True:
                before = controller.topics.get(topic)
                if before is None or controller.replica_deletion.is_deleting(topic):
                    raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
                results: dict[TopicPartition, BrokerError | None] = {}
                changes = {}
                for wanted in requested_elections:
                    tp = TopicPartition(topic, wanted.partition)
                    try:
                        if wanted.partition not in before.partitions:
                            raise UnknownTopicOrPartitionError(f"{tp} does not exist")
                        changes[wanted.partition] = plan_reassignment(
                            wanted, before, controller.brokers, self._internal
                        )
                        results[tp] = None
                    except BrokerError as error:
                        results[tp] = error
                after = before.reassigned(changes)
                if after == before or await term.change_assignment(after):
                    return results
                self._raise_if_over(deadline_ms)

    def _raise_if_over(self, deadline_ms: int) -> None:
        if self._clock.monotonic_ms() >= deadline_ms:
            raise RequestTimedOutError("somebody else writes the same assignment all the time")

    async def list_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Those in progress."""
        controller = self._term().controller
        asked = controller.partitions() if request.partitions is None else _named(request.partitions)
        found = []
        for tp in asked:
            topic = controller.topics.get(tp.topic)
            if topic is None or tp.partition not in topic.partitions:
                continue
            now = topic.assigned(tp.partition)
            if now.moving:
                found.append(PartitionReassignment(tp.topic, tp.partition, now.replicas, now.adding, now.removing))
        return ListPartitionReassignmentsResponse(tuple(found))


def _named(partitions: Iterable[DescribePartition]) -> list[TopicPartition]:
    return list(dict.fromkeys(TopicPartition(each.topic, each.partition) for each in partitions))


def _result(tp: TopicPartition, error: BrokerError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(tp.topic, tp.partition, 0, None)
    return PartitionResult(tp.topic, tp.partition, error.code, str(error))

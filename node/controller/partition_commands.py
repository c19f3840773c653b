"""Commands of clients on partitions: add partitions, elect leaders, reassign replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from cluster.controller.controller import Controller
from cluster.controller.replicas.capacity import BrokerCapacity
from node.controller.command_errors import COMMAND_ERRORS, broker_error_of
from node.controller.controller_term import ControllerTerm
from node.controller.topic_validation import fit_for_znode, plan_partitions, plan_reassignment, plan_within
from node.metadata.internal_topics import InternalTopicRules, is_internal
from node.net.server import due_in
from node.runtime.condition import holds_for_each
from node.runtime.lock_with_deadline import lock_until, raise_if_over
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
    """Carries out commands on partitions. Each method raises NotControllerError if this broker is not the controller.

    term       returns the current ControllerTerm, or raises NotControllerError
    internal   the limits for reassignments of internal topics
    most       returns how many partitions each broker may hold
    """

    def __init__(
        self,
        term: Callable[[], ControllerTerm],
        internal: InternalTopicRules,
        clock: Clock,
        most: Callable[[], int],
    ) -> None:
        self._term = term
        self._internal = internal
        self._clock = clock
        self._most = most

    # --- more partitions -----------------------------------------------------------------------------

    async def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """Add partitions, or only check the request if it says so; return one outcome per topic, in the given order.

        The answer waits until each new partition has a leader that has confirmed, or until the deadline. A topic with
        new partitions that are not led by then gets REQUEST_TIMED_OUT. A topic that is named twice is not changed.
        """
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
            except COMMAND_ERRORS as error:
                refused = broker_error_of(error)
                outcomes[new.name] = ExtendedTopic(new.name, refused.code, str(refused))
        if pending:
            await term.wait_until_led(pending, deadline_ms)
            for topic in {tp.topic for tp in pending if not term.is_led(tp)}:
                message = f"partitions were added to {topic!r}, but not all of them have a leader yet"
                outcomes[topic] = ExtendedTopic(topic, RequestTimedOutError.code, message)
            await term.wait_until_propagated(deadline_ms)
        return CreatePartitionsResponse(tuple(outcomes[new.name] for new in request.topics))

    async def _extend(
        self, term: ControllerTerm, new: NewPartitions, validate_only: bool, deadline_ms: int
    ) -> list[TopicPartition]:
        controller = term.controller
        async with lock_until(term.topics_lock, self._clock, deadline_ms):
            while True:
                before = controller.context.topics.get(new.name)
                if before is None or controller.replica_deletion.is_deleting(new.name):
                    raise UnknownTopicOrPartitionError(f"topic {new.name!r} does not exist")
                live = controller.context.brokers.keys() - controller.context.shutting_down
                context = controller.context
                plan = partial(plan_partitions, new, before, load=context.load(), racks=context.racks())
                after = plan_within(self._capacity(controller), new.name, live, plan, before)
                if validate_only:
                    return []
                if await term.change_assignment(after):
                    return sorted(set(after.topic_partitions()) - set(before.topic_partitions()))
                self._raise_if_over(deadline_ms)

    # --- elections -----------------------------------------------------------------------------------

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elect preferred leaders, or any live replicas if the election is unclean; return one result per partition.

        The answer waits until each new leader has confirmed, or until the deadline. An election that is not over by
        then gets REQUEST_TIMED_OUT and goes on. An election that is not needed or not possible gets an error. If the
        request names no partitions (None), all are meant, and those that need no election are omitted. Raise
        InvalidRequestError if the election type is unknown.
        """
        term = self._term()
        term.raise_if_loading()
        controller = term.controller
        deadline_ms = due_in(self._clock.monotonic_ms(), request.timeout_ms)
        if request.election_type not in list(ElectionType):
            raise InvalidRequestError(f"election type {request.election_type}: must be 0 (preferred) or 1 (unclean)")
        unclean = request.election_type == ElectionType.UNCLEAN
        tps = controller.context.topic_partitions() if request.partitions is None else _named(request.partitions)
        results: dict[TopicPartition, BrokerError | None] = {}
        elected: list[TopicPartition] = []
        for tp in tps:
            if controller.context.state_of(tp) is None or controller.replica_deletion.is_deleting(tp.topic):
                results[tp] = UnknownTopicOrPartitionError(f"{tp} does not exist")
            elif (refusal := controller.election_refusal(tp, unclean=unclean)) and not controller.election_in_progress(
                tp
            ):
                results[tp] = refusal
            else:
                elected.append(tp)
        await term.perform(controller.elections_wanted(elected, unclean=unclean))

        def is_over(tp: TopicPartition) -> bool:
            return not controller.election_in_progress(tp) and term.is_led(tp)

        await term.wait_until(holds_for_each(elected, is_over), deadline_ms)
        for tp in elected:
            results[tp] = self._election_result(term, tp, unclean=unclean)
        await term.wait_until_propagated(deadline_ms)
        return ElectLeadersResponse(
            tuple(
                _result(tp, results[tp])
                for tp in tps
                if request.partitions is not None or not isinstance(results[tp], ElectionNotNeededError)
            )
        )

    @staticmethod
    def _election_result(term: ControllerTerm, tp: TopicPartition, *, unclean: bool) -> BrokerError | None:
        controller = term.controller
        if controller.context.state_of(tp) is None:
            return UnknownTopicOrPartitionError(f"{tp} does not exist any more")
        if not controller.election_in_progress(tp):
            refusal = controller.election_refusal(tp, unclean=unclean)
            if refusal is not None and not isinstance(refusal, ElectionNotNeededError):
                return refusal
            if term.is_led(tp):
                return None
        return RequestTimedOutError(f"{tp}: the election is in progress, but the new leader has not answered yet")

    # --- reassignments -------------------------------------------------------------------------------

    async def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Start or cancel reassignments; return one result per partition, in the given order.

        The answer waits until ZooKeeper has the new assignments, and does not wait until replicas have moved. An error
        of ZooKeeper, the deadline, or a partition that is named twice refuses all named partitions of the topic.
        """
        term = self._term()
        deadline_ms = due_in(self._clock.monotonic_ms(), request.timeout_ms)
        by_topic: dict[str, list[WantedReplicas]] = {}
        for wanted in request.partitions:
            by_topic.setdefault(wanted.topic, []).append(wanted)
        results: dict[TopicPartition, BrokerError | None] = {}
        for number, (topic, reassignments) in enumerate(by_topic.items()):
            tps = [TopicPartition(topic, wanted.partition) for wanted in reassignments]
            try:
                if len(set(tps)) < len(tps):
                    raise InvalidRequestError(f"the request names a partition of topic {topic!r} twice")
                if number:
                    raise_if_over(self._clock, deadline_ms)
                results |= await self._reassign(term, topic, reassignments, deadline_ms)
            except COMMAND_ERRORS as error:
                results |= dict.fromkeys(tps, broker_error_of(error))
        asked = (TopicPartition(each.topic, each.partition) for each in request.partitions)
        return AlterPartitionReassignmentsResponse(tuple(_result(tp, results[tp]) for tp in asked))

    async def _reassign(
        self, term: ControllerTerm, topic: str, reassignments: list[WantedReplicas], deadline_ms: int
    ) -> dict[TopicPartition, BrokerError | None]:
        controller = term.controller
        async with lock_until(term.topics_lock, self._clock, deadline_ms):
            while True:
                before = controller.context.topics.get(topic)
                if before is None or controller.replica_deletion.is_deleting(topic):
                    raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
                results: dict[TopicPartition, BrokerError | None] = {}
                changes = {}
                capacity = self._capacity(controller)
                for wanted in reassignments:
                    tp = TopicPartition(topic, wanted.partition)
                    try:
                        if wanted.partition not in before.partitions:
                            raise UnknownTopicOrPartitionError(f"{tp} does not exist")
                        planned = plan_reassignment(wanted, before, controller.context.brokers, self._internal)
                        if not is_internal(topic):
                            holders = controller.context.partitions[tp].holders
                            capacity.add(topic, set(planned.replicas).difference(holders))
                        changes[wanted.partition] = planned
                        results[tp] = None
                    except BrokerError as error:
                        results[tp] = error
                after = before.reassigned(changes)
                if after == before:
                    return results
                if any(wanted.replicas is not None for wanted in reassignments):
                    fit_for_znode(after)  # a cancellation is always possible, and adds at most half of the limit
                if await term.change_assignment(after):
                    return results
                self._raise_if_over(deadline_ms)

    def _capacity(self, controller: Controller) -> BrokerCapacity:
        return BrokerCapacity(controller.context.held_partitions(), self._most())

    def _raise_if_over(self, deadline_ms: int) -> None:
        if self._clock.monotonic_ms() >= deadline_ms:
            raise RequestTimedOutError("the assignment was changed by other writers at each attempt; try again")

    async def list_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Return the reassignments in progress of the named partitions, or of all partitions (None).

        Raise NotControllerError while the controller does not know all topics yet.
        """
        term = self._term()
        term.raise_if_loading()
        controller = term.controller
        asked = controller.context.topic_partitions() if request.partitions is None else _named(request.partitions)
        found = []
        for tp in asked:
            topic = controller.context.topics.get(tp.topic)
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

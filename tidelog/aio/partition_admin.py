"""Send the admin's requests about partitions: new partitions, elections and reassignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.controller_requests import ControllerRequests, about_topic
from tidelog.errors import (
    InvalidPartitionsError,
    NoReassignmentInProgressError,
    TidelogError,
    UnknownTopicOrPartitionError,
    error_for,
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


class PartitionAdmin:
    """The part of `Admin` that is about partitions. Deadlines are of the client's monotonic clock (ms)."""

    def __init__(self, client: ClusterClient, controller: ControllerRequests) -> None:
        self._client = client
        self._controller = controller

    async def create(self, topics: Iterable[NewPartitions], deadline_ms: int, validate_only: bool) -> None:
        """See `Admin.create_partitions`."""
        wanted = tuple(topics)
        await self._controller.ask(
            lambda left_ms: CreatePartitionsRequest(wanted, left_ms, validate_only),
            CreatePartitionsResponse,
            deadline_ms,
            refusals=lambda answer: map(_refused_topic, answer.topics),
            done_before=(InvalidPartitionsError,),
        )
        if validate_only:
            return
        for topic in wanted:
            await self._controller.await_leaders(topic.name, deadline_ms, partitions=topic.total_count)
            count = self._client.view.partition_count(topic.name)
            if count > topic.total_count:
                raise InvalidPartitionsError(f"topic {topic.name!r} has {count} partitions, not {topic.total_count}")

    async def elect(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None, deadline_ms: int
    ) -> dict[TopicPartition, TidelogError | None]:
        """See `Admin.elect_leaders`. `partitions` None: all partitions."""
        named = _named(partitions)
        answer = await self._controller.ask(
            lambda left_ms: ElectLeadersRequest(election_type, named, left_ms), ElectLeadersResponse, deadline_ms
        )
        return {TopicPartition(each.topic, each.partition): _refused_partition(each) for each in answer.partitions}

    async def reassign(self, reassignments: Mapping[TopicPartition, Sequence[int] | None], deadline_ms: int) -> None:
        """See `Admin.alter_partition_reassignments`."""
        wanted = tuple(
            WantedReplicas(tp.topic, tp.partition, None if replicas is None else tuple(replicas))
            for tp, replicas in reassignments.items()
        )
        await self._controller.ask(
            lambda left_ms: AlterPartitionReassignmentsRequest(wanted, left_ms),
            AlterPartitionReassignmentsResponse,
            deadline_ms,
            refusals=lambda answer: map(_refused_partition, answer.partitions),
            done_before=(NoReassignmentInProgressError,),
        )

    async def reassignments(
        self, partitions: Iterable[TopicPartition] | None, deadline_ms: int
    ) -> dict[TopicPartition, PartitionReassignment]:
        """See `Admin.list_partition_reassignments`. `partitions` None: all partitions."""
        named = _named(partitions)
        answer = await self._controller.ask(
            lambda left_ms: ListPartitionReassignmentsRequest(named), ListPartitionReassignmentsResponse, deadline_ms
        )
        return {TopicPartition(each.topic, each.partition): each for each in answer.partitions}


def _named(partitions: Iterable[TopicPartition] | None) -> tuple[DescribePartition, ...] | None:
    return None if partitions is None else tuple(DescribePartition(*tp) for tp in partitions)


def _refused_topic(topic: ExtendedTopic) -> TidelogError | None:
    if topic.error_code == UnknownTopicOrPartitionError.code:
        return UnknownTopicOrPartitionError(f"topic {topic.name!r} does not exist")
    error = error_for(topic.error_code)
    return error and type(error)(about_topic(topic.name, topic.error_message or str(error)))


def _refused_partition(result: PartitionResult) -> TidelogError | None:
    return error_for(result.error_code, result.error_message or "")

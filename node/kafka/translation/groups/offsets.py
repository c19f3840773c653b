"""OffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of groups.

Version 0 of OffsetCommit and OffsetFetch keeps the offsets in ZooKeeper, and any broker answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

from node.kafka.calls import Call, NativeHandler, Outcome, converted, response_of
from tidelog.errors import BrokerError, CoordinatorNotAvailableError, NotCoordinatorError
from tidelog.protocol import group_messages as native
from tidelog.protocol.kafka.by_topic import by_topic
from tidelog.protocol.kafka.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidelog.protocol.messages import DescribePartition, Response

T = TypeVar("T")

#: The version that keeps offsets in ZooKeeper.
_IN_ZOOKEEPER = 0
#: The first version of OffsetFetch whose response has an error for the whole request.
_ONE_ERROR = 2
#: The first version of OffsetFetch that names several groups.
_SEVERAL_GROUPS = 8


class GroupOffsetTranslation:
    """The translations of this module; `handle` is the broker's own handler."""

    def __init__(self, handle: NativeHandler) -> None:
        self._handle = handle

    # --- OffsetCommit --------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, call: Call) -> Outcome:
        """Commit offsets of a group; in version 0, in ZooKeeper."""
        wanted = native.OffsetCommitRequest(
            request.group_id,
            tuple(
                native.OffsetCommitPartition(
                    topic.name,
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata or "",
                    each.commit_timestamp,
                )
                for topic in request.topics
                for each in topic.partitions
            ),
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            in_zookeeper=call.version == _IN_ZOOKEEPER,
            retention_ms=request.retention_time_ms,
        )

        def convert(response: native.OffsetCommitResponse) -> OffsetCommitResponse:
            return _committed((each.topic, each.partition, each.error_code) for each in response.partitions)

        return converted(self._handle(wanted, call.context), convert)

    @staticmethod
    def commit_error(request: OffsetCommitRequest, error: BrokerError, version: int) -> OffsetCommitResponse:
        """Return the response in which every partition has this error."""
        return _committed(
            (topic.name, each.partition_index, error.code) for topic in request.topics for each in topic.partitions
        )

    # --- OffsetFetch ---------------------------------------------------------------------------------

    def fetch(self, request: OffsetFetchRequest, call: Call) -> Outcome:
        """Return the committed offsets of a group, or from version 8 on of several; in version 0, those in ZooKeeper.

        COORDINATOR_NOT_AVAILABLE becomes NOT_COORDINATOR, except in version 0.
        """
        if call.version >= _SEVERAL_GROUPS:
            return self._fetch_of_groups(request, call)
        in_zookeeper = call.version == _IN_ZOOKEEPER
        wanted = native.OffsetFetchRequest(request.group_id, _named(request.topics), in_zookeeper)

        def convert(response: native.OffsetFetchResponse) -> OffsetFetchResponse:
            if response.error_code:
                return _not_fetched(request, response.error_code, call.version)
            return OffsetFetchResponse(topics=_fetched(response.partitions))

        return converted(self._handle(wanted, call.context), convert)

    def _fetch_of_groups(self, request: OffsetFetchRequest, call: Call) -> Outcome:
        outcomes = [
            self._handle(native.OffsetFetchRequest(group.group_id, _named(group.topics)), call.context)
            for group in request.groups
        ]

        def convert(responses: Sequence[native.OffsetFetchResponse]) -> OffsetFetchResponse:
            return OffsetFetchResponse(
                groups=tuple(
                    OffsetFetchResponseGroup(
                        group_id=group.group_id,
                        topics=_fetched_of_group(response.partitions),
                        error_code=_fetch_error_code(response.error_code),
                    )
                    for group, response in zip(request.groups, responses, strict=True)
                )
            )

        if all(isinstance(outcome, Response) for outcome in outcomes):
            return convert(cast(Sequence[native.OffsetFetchResponse], outcomes))

        async def convert_later() -> OffsetFetchResponse:
            return convert([await response_of(outcome) for outcome in outcomes])

        return convert_later()

    @staticmethod
    def fetch_error(request: OffsetFetchRequest, error: BrokerError, version: int) -> OffsetFetchResponse:
        """Return the response that carries this error, which from version 8 on is stated for each group.

        COORDINATOR_NOT_AVAILABLE becomes NOT_COORDINATOR, except in version 0.
        """
        if version >= _SEVERAL_GROUPS:
            code = _fetch_error_code(error.code)
            return OffsetFetchResponse(
                groups=tuple(
                    OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)
                    for group in request.groups
                )
            )
        return _not_fetched(request, error.code, version)

    # --- OffsetDelete --------------------------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest, call: Call) -> Outcome:
        """Delete committed offsets of a group."""
        wanted = native.OffsetDeleteRequest(
            request.group_id,
            tuple(
                DescribePartition(topic.name, each.partition_index)
                for topic in request.topics
                for each in topic.partitions
            ),
        )

        def convert(response: native.OffsetDeleteResponse) -> OffsetDeleteResponse:
            return OffsetDeleteResponse(
                error_code=response.error_code,
                topics=tuple(
                    OffsetDeleteResponseTopic(name=name, partitions=partitions)
                    for name, partitions in by_topic(
                        (
                            each.topic,
                            OffsetDeleteResponsePartition(partition_index=each.partition, error_code=each.error_code),
                        )
                        for each in response.partitions
                    )
                ),
            )

        return converted(self._handle(wanted, call.context), convert)

    @staticmethod
    def delete_error(request: OffsetDeleteRequest, error: BrokerError, version: int) -> OffsetDeleteResponse:
        """Return the response that carries this error."""
        return OffsetDeleteResponse(error_code=error.code, topics=())


def _committed(results: Iterable[tuple[str, int, int]]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(name=name, partitions=partitions)
            for name, partitions in by_topic(
                (topic, OffsetCommitResponsePartition(partition_index=partition, error_code=error_code))
                for topic, partition, error_code in results
            )
        )
    )


def _named(
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> tuple[DescribePartition, ...] | None:
    """Return the partitions of the request, or None if it asks for all with an offset."""
    if topics is None:
        return None
    return tuple(DescribePartition(topic.name, partition) for topic in topics for partition in topic.partition_indexes)


def _fetched(partitions: Iterable[native.OffsetFetchPartition]) -> tuple[OffsetFetchResponseTopic, ...]:
    return _fetched_as(OffsetFetchResponseTopic, OffsetFetchResponsePartition, partitions)


def _fetched_of_group(partitions: Iterable[native.OffsetFetchPartition]) -> tuple[OffsetFetchResponseTopics, ...]:
    return _fetched_as(OffsetFetchResponseTopics, OffsetFetchResponsePartitions, partitions)


def _fetched_as(
    topic: Callable[..., T], partition: Callable[..., object], found: Iterable[native.OffsetFetchPartition]
) -> tuple[T, ...]:
    """Return the topics with their partitions. Both versions of the response have the same fields in other classes."""
    described = (
        (
            each.topic,
            partition(
                partition_index=each.partition,
                committed_offset=each.committed_offset,
                committed_leader_epoch=each.committed_leader_epoch,
                metadata=each.metadata,
                error_code=each.error_code,
            ),
        )
        for each in found
    )
    return tuple(topic(name=name, partitions=partitions) for name, partitions in by_topic(described))


def _not_fetched(request: OffsetFetchRequest, error_code: int, version: int) -> OffsetFetchResponse:
    """Return the response for an error of the whole request, which versions 0 and 1 state for each partition."""
    code = error_code if version == _IN_ZOOKEEPER else _fetch_error_code(error_code)
    partitions = _named(request.topics) or () if version < _ONE_ERROR else ()
    return OffsetFetchResponse(
        topics=_fetched(native.OffsetFetchPartition(each.topic, each.partition, code) for each in partitions),
        error_code=code,
    )


def _fetch_error_code(error_code: int) -> int:
    # A coordinator that may be deposed refuses to read. Clients do not expect the error that says so, and Java's fails
    # the caller, while the error that stands here makes each client look up the coordinator again.
    return NotCoordinatorError.code if error_code == CoordinatorNotAvailableError.code else error_code

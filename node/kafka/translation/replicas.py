"""ElectLeaders, DescribeLogDirs, AlterReplicaLogDirs, and the reassignment of partitions."""

from __future__ import annotations

from collections.abc import Iterable

from node.kafka.calls import Call, NativeHandler, Outcome, converted
from tidelog.errors import BrokerError
from tidelog.protocol import admin_messages as admin
from tidelog.protocol import partition_messages as partitions
from tidelog.protocol.kafka.by_topic import by_topic
from tidelog.protocol.kafka.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from tidelog.protocol.messages import DescribePartition

#: The first version of ElectLeaders whose response has an error for the whole request.
_ERROR_OF_ELECTION = 1


class ReplicaTranslation:
    """The translations of this module; `handle` is the broker's own handler."""

    def __init__(self, handle: NativeHandler) -> None:
        self._handle = handle

    # --- ElectLeaders --------------------------------------------------------------------------------

    def elect(self, request: ElectLeadersRequest, call: Call) -> Outcome:
        """Elect leaders; version 0 elects preferred ones."""
        wanted = None
        if request.topic_partitions is not None:
            wanted = _named((topic.topic, topic.partitions) for topic in request.topic_partitions)
        outcome = self._handle(
            partitions.ElectLeadersRequest(request.election_type, wanted, request.timeout_ms), call.context
        )

        def convert(response: partitions.ElectLeadersResponse) -> ElectLeadersResponse:
            return _elected(
                (each.topic, each.partition, each.error_code, each.error_message) for each in response.partitions
            )

        return converted(outcome, convert)

    @staticmethod
    def elect_error(request: ElectLeadersRequest, error: BrokerError, version: int) -> ElectLeadersResponse:
        """Return the response with this error for every named partition, and from version 1 on for the request."""
        return _elected(
            (
                (topic.topic, number, error.code, str(error))
                for topic in request.topic_partitions or ()
                for number in topic.partitions
            ),
            error.code if version >= _ERROR_OF_ELECTION else 0,
        )

    # --- AlterPartitionReassignments, ListPartitionReassignments -------------------------------------

    def reassign(self, request: AlterPartitionReassignmentsRequest, call: Call) -> Outcome:
        """Start or cancel reassignments."""
        wanted = tuple(
            partitions.WantedReplicas(topic.name, each.partition_index, each.replicas)
            for topic in request.topics
            for each in topic.partitions
        )
        outcome = self._handle(partitions.AlterPartitionReassignmentsRequest(wanted, request.timeout_ms), call.context)

        def convert(response: partitions.AlterPartitionReassignmentsResponse) -> AlterPartitionReassignmentsResponse:
            return AlterPartitionReassignmentsResponse(
                error_code=0,
                error_message=None,
                responses=_reassigned(
                    (each.topic, each.partition, each.error_code, each.error_message) for each in response.partitions
                ),
            )

        return converted(outcome, convert)

    @staticmethod
    def reassign_error(
        request: AlterPartitionReassignmentsRequest, error: BrokerError, version: int
    ) -> AlterPartitionReassignmentsResponse:
        """Return the response that carries this error for the whole request, and for every partition."""
        return AlterPartitionReassignmentsResponse(
            error_code=error.code,
            error_message=str(error),
            responses=_reassigned(
                (topic.name, each.partition_index, error.code, str(error))
                for topic in request.topics
                for each in topic.partitions
            ),
        )

    def reassignments(self, request: ListPartitionReassignmentsRequest, call: Call) -> Outcome:
        """List the reassignments in progress, of the named partitions or of all (null)."""
        wanted = None
        if request.topics is not None:
            wanted = _named((topic.name, topic.partition_indexes) for topic in request.topics)
        outcome = self._handle(partitions.ListPartitionReassignmentsRequest(wanted), call.context)

        def convert(response: partitions.ListPartitionReassignmentsResponse) -> ListPartitionReassignmentsResponse:
            moving = (
                (
                    each.topic,
                    OngoingPartitionReassignment(
                        partition_index=each.partition,
                        replicas=each.replicas,
                        adding_replicas=each.adding_replicas,
                        removing_replicas=each.removing_replicas,
                    ),
                )
                for each in response.partitions
            )
            return ListPartitionReassignmentsResponse(
                error_code=0,
                error_message=None,
                topics=tuple(OngoingTopicReassignment(name=name, partitions=parts) for name, parts in by_topic(moving)),
            )

        return converted(outcome, convert)

    @staticmethod
    def reassignments_error(
        request: ListPartitionReassignmentsRequest, error: BrokerError, version: int
    ) -> ListPartitionReassignmentsResponse:
        """Return the response that carries this error."""
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error), topics=())

    # --- DescribeLogDirs -----------------------------------------------------------------------------

    def log_dirs(self, request: DescribeLogDirsRequest, call: Call) -> Outcome:
        """Describe this broker's log directories, with the named logs or with all (null)."""
        wanted = None
        if request.topics is not None:
            wanted = _named((topic.topic, topic.partitions) for topic in request.topics)
        outcome = self._handle(admin.DescribeLogDirsRequest(wanted), call.context)

        def convert(response: admin.DescribeLogDirsResponse) -> DescribeLogDirsResponse:
            return DescribeLogDirsResponse(results=tuple(map(_log_dir, response.log_dirs)))

        return converted(outcome, convert)

    @staticmethod
    def log_dirs_error(request: DescribeLogDirsRequest, error: BrokerError, version: int) -> DescribeLogDirsResponse:
        """Return the response that carries this error; versions below 3 have no field for it."""
        return DescribeLogDirsResponse(error_code=error.code, results=())

    # --- AlterReplicaLogDirs -------------------------------------------------------------------------

    def alter_log_dirs(self, request: AlterReplicaLogDirsRequest, call: Call) -> Outcome:
        """Begin to move replicas of this broker to other log directories of this broker."""
        wanted = tuple(
            admin.ReplicaLogDir(topic.name, number, each.path)
            for each in request.dirs
            for topic in each.topics
            for number in topic.partitions
        )
        outcome = self._handle(admin.AlterReplicaLogDirsRequest(wanted), call.context)

        def convert(response: admin.AlterReplicaLogDirsResponse) -> AlterReplicaLogDirsResponse:
            return _altered((each.topic, each.partition, each.error_code) for each in response.results)

        return converted(outcome, convert)

    @staticmethod
    def alter_log_dirs_error(
        request: AlterReplicaLogDirsRequest, error: BrokerError, version: int
    ) -> AlterReplicaLogDirsResponse:
        """Return the response in which every named replica has this error."""
        return _altered(
            (topic.name, number, error.code)
            for each in request.dirs
            for topic in each.topics
            for number in topic.partitions
        )


def _altered(results: Iterable[tuple[str, int, int]]) -> AlterReplicaLogDirsResponse:
    found = (
        (topic, AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code))
        for topic, number, code in results
    )
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=parts) for name, parts in by_topic(found)
        )
    )


def _named(topics: Iterable[tuple[str, tuple[int, ...]]]) -> tuple[DescribePartition, ...]:
    return tuple(DescribePartition(topic, number) for topic, numbers in topics for number in numbers)


def _elected(results: Iterable[tuple[str, int, int, str | None]], error_code: int = 0) -> ElectLeadersResponse:
    found = (
        (topic, PartitionResult(partition_id=number, error_code=code, error_message=message))
        for topic, number, code, message in results
    )
    return ElectLeadersResponse(
        error_code=error_code,
        replica_election_results=tuple(
            ReplicaElectionResult(topic=topic, partition_result=parts) for topic, parts in by_topic(found)
        ),
    )


def _reassigned(results: Iterable[tuple[str, int, int, str | None]]) -> tuple[ReassignableTopicResponse, ...]:
    found = (
        (topic, ReassignablePartitionResponse(partition_index=number, error_code=code, error_message=message))
        for topic, number, code, message in results
    )
    return tuple(ReassignableTopicResponse(name=name, partitions=parts) for name, parts in by_topic(found))


def _log_dir(found: admin.LogDir) -> DescribeLogDirsResult:
    logs = (
        (
            each.topic,
            DescribeLogDirsPartition(
                partition_index=each.partition,
                partition_size=each.size_bytes,
                offset_lag=each.offset_lag,
                is_future_key=each.is_future,
            ),
        )
        for each in found.replicas
    )
    return DescribeLogDirsResult(
        error_code=found.error_code,
        log_dir=found.path,
        topics=tuple(DescribeLogDirsTopic(name=name, partitions=parts) for name, parts in by_topic(logs)),
        total_bytes=found.total_bytes,
        usable_bytes=found.usable_bytes,
    )

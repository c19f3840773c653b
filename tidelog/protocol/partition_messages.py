"""What clients may ask of the controller about partitions: more of them, other leaders, other replicas.

Messages as in `tidelog.protocol.messages`. A broker that is not the controller refuses each of them with
NOT_CONTROLLER.
"""

from __future__ import annotations

from enum import IntEnum

from tidelog.frozen_dataclass import frozen
from tidelog.protocol.messages import ApiKey, DescribePartition, Message, Request, Response


class ElectionType(IntEnum):
    """Who is to lead.

    PREFERRED   the first of the replicas, where it is in sync
    UNCLEAN     of a partition without a leader whoever lives: records that it does not have are lost
    """

    PREFERRED = 0
    UNCLEAN = 1


@frozen
class PartitionResult(Message):
    """The outcome for one partition."""

    topic: str
    partition: int
    error_code: int
    error_message: str | None = None


# --- CreatePartitions --------------------------------------------------------------------------------


@frozen
class NewPartitions(Message):
    """A topic is to have `total_count` partitions.

    `assignment` has the replicas of the new ones by their numbers, the preferred leader first; None: as the round goes.
    """

    name: str
    total_count: int
    assignment: dict[int, tuple[int, ...]] | None = None


@frozen
class ExtendedTopic(Message):
    """The outcome for one topic."""

    name: str
    error_code: int
    error_message: str | None = None


@frozen
class CreatePartitionsResponse(Response):
    """One entry for each topic of the request, in its order."""

    topics: tuple[ExtendedTopic, ...]


@frozen
class CreatePartitionsRequest(Request):
    """Answered when the new partitions have leaders, else REQUEST_TIMED_OUT (added all the same, if that is said)."""

    topics: tuple[NewPartitions, ...]
    timeout_ms: int
    validate_only: bool = False

    api = ApiKey.CREATE_PARTITIONS
    response = CreatePartitionsResponse


# --- ElectLeaders ------------------------------------------------------------------------------------


@frozen
class ElectLeadersResponse(Response):
    """One entry for each partition; where all were asked for, none for those that needed no election."""

    partitions: tuple[PartitionResult, ...]


@frozen
class ElectLeadersRequest(Request):
    """`election_type` is an ElectionType; `partitions` None asks for all."""

    election_type: int
    partitions: tuple[DescribePartition, ...] | None
    timeout_ms: int

    api = ApiKey.ELECT_LEADERS
    response = ElectLeadersResponse


# --- AlterPartitionReassignments, ListPartitionReassignments -----------------------------------------


@frozen
class WantedReplicas(Message):
    """Who is to have a replica, the preferred leader first; None cancels the reassignment in progress."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@frozen
class AlterPartitionReassignmentsResponse(Response):
    """One entry for each partition of the request, in its order."""

    partitions: tuple[PartitionResult, ...]


@frozen
class AlterPartitionReassignmentsRequest(Request):
    """Answered when the reassignments are written down, long before they have ended."""

    partitions: tuple[WantedReplicas, ...]
    timeout_ms: int

    api = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    response = AlterPartitionReassignmentsResponse


@frozen
class PartitionReassignment(Message):
    """A reassignment in progress: all replicas, those that come, and those that go."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@frozen
class ListPartitionReassignmentsResponse(Response):
    """Those in progress, in their order."""

    partitions: tuple[PartitionReassignment, ...]


@frozen
class ListPartitionReassignmentsRequest(Request):
    """`partitions` None asks for all."""

    partitions: tuple[DescribePartition, ...] | None = None

    api = ApiKey.LIST_PARTITION_REASSIGNMENTS
    response = ListPartitionReassignmentsResponse


#: Every request in here.
PARTITION_REQUESTS: tuple[type[Request], ...] = (
    CreatePartitionsRequest,
    ElectLeadersRequest,
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)

"""Define the requests of clients to the controller about partitions: new partitions, elections and reassignments.

The form is that of `tidelog.protocol.messages`. A broker that is not the controller rejects each request with
NOT_CONTROLLER.
"""

from __future__ import annotations

from enum import IntEnum

from tidelog.frozen_dataclass import frozen
from tidelog.protocol.messages import ApiKey, DescribePartition, Message, Request, Response


class ElectionType(IntEnum):
    """The kind of an election, with Kafka's numbers.

    PREFERRED   elect the first replica, if it is live and in sync
    UNCLEAN     if a partition has no leader, elect the live replica whose log reaches farthest, in the ISR or not;
                records that it does not have are lost

    Example:

        admin.elect_leaders(ElectionType.PREFERRED)
    """

    PREFERRED = 0
    UNCLEAN = 1


@frozen
class PartitionResult(Message):
    """The outcome for one partition. An `error_code` of 0: the leader is elected, or ZooKeeper has the reassignment."""

    topic: str
    partition: int
    error_code: int
    error_message: str | None = None


# --- CreatePartitions --------------------------------------------------------------------------------


@frozen
class NewPartitions(Message):
    """A topic that is to have `total_count` partitions, old and new ones together.

    `assignment` has the replicas of each new partition by its number, the preferred leader first; None: the controller
    places the replicas round-robin.

    Example:

        admin.create_partitions([NewPartitions("payments", total_count=12)])
    """

    name: str
    total_count: int
    assignment: dict[int, tuple[int, ...]] | None = None


@frozen
class ExtendedTopic(Message):
    """The outcome for one topic. With REQUEST_TIMED_OUT the partitions may be added nevertheless; the message tells."""

    name: str
    error_code: int
    error_message: str | None = None


@frozen
class CreatePartitionsResponse(Response):
    """The answer, with one entry for each topic of the request, in order."""

    topics: tuple[ExtendedTopic, ...]


@frozen
class CreatePartitionsRequest(Request):
    """Adds partitions to topics. `validate_only` checks the request and adds nothing.

    The answer comes when each new partition has a leader that has confirmed, or after `timeout_ms`.
    """

    topics: tuple[NewPartitions, ...]
    timeout_ms: int
    validate_only: bool = False

    api = ApiKey.CREATE_PARTITIONS
    response = CreatePartitionsResponse


# --- ElectLeaders ------------------------------------------------------------------------------------


@frozen
class ElectLeadersResponse(Response):
    """The answer, with one entry for each partition of the request, in order and without repetitions.

    If the request asked for all partitions, those that needed no election are left out.
    """

    partitions: tuple[PartitionResult, ...]


@frozen
class ElectLeadersRequest(Request):
    """Elects leaders. `election_type` is an ElectionType; `partitions` None means all partitions of the cluster.

    The answer comes when every new leader has confirmed, or after `timeout_ms`.
    """

    election_type: int
    partitions: tuple[DescribePartition, ...] | None
    timeout_ms: int

    api = ApiKey.ELECT_LEADERS
    response = ElectLeadersResponse


# --- AlterPartitionReassignments, ListPartitionReassignments -----------------------------------------


@frozen
class WantedReplicas(Message):
    """The new replicas of a partition, the preferred leader first; None cancels the reassignment in progress."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@frozen
class AlterPartitionReassignmentsResponse(Response):
    """The answer, with one entry for each partition of the request, in order."""

    partitions: tuple[PartitionResult, ...]


@frozen
class AlterPartitionReassignmentsRequest(Request):
    """Starts or cancels reassignments.

    The answer comes when ZooKeeper has them, long before the replicas have moved.
    """

    partitions: tuple[WantedReplicas, ...]
    timeout_ms: int

    api = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    response = AlterPartitionReassignmentsResponse


@frozen
class PartitionReassignment(Message):
    """A reassignment in progress: all replicas, old and new; the replicas to be added; and those to be removed."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@frozen
class ListPartitionReassignmentsResponse(Response):
    """The reassignments in progress; partitions without one are left out."""

    partitions: tuple[PartitionReassignment, ...]


@frozen
class ListPartitionReassignmentsRequest(Request):
    """Lists the reassignments in progress of these partitions; `partitions` None means all partitions."""

    partitions: tuple[DescribePartition, ...] | None = None

    api = ApiKey.LIST_PARTITION_REASSIGNMENTS
    response = ListPartitionReassignmentsResponse


#: Every request of this module.
PARTITION_REQUESTS: tuple[type[Request], ...] = (
    CreatePartitionsRequest,
    ElectLeadersRequest,
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)

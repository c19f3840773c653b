"""Define the requests of consumer groups and their tools to a coordinator.

The form is that of `tidelog.protocol.messages`. Senders that are not members set `generation_id` to −1 and `member_id`
to ""; `group_instance_id` is a static member's (KIP-345). Brokers do not read the bytes that members exchange
(`tidelog.groups.assignment.consumer_protocol`).
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from tidelog.frozen_dataclass import frozen, since
from tidelog.protocol.messages import ApiKey, DescribePartition, Message, Request, Response

# --- FindCoordinator ---------------------------------------------------------------------------------


@frozen
class Coordinator(Message):
    """The coordinator of one group."""

    key: str
    error_code: int
    broker_id: int = -1
    host: str = ""
    port: int = -1
    error_message: str | None = None


@frozen
class FindCoordinatorResponse(Response):
    """The answer, with one entry for each key of the request, in order."""

    coordinators: tuple[Coordinator, ...]


@frozen
class FindCoordinatorRequest(Request):
    """Finds coordinators; any broker answers. The first request creates the offsets topic; `key_type` 0 is a group."""

    keys: tuple[str, ...]
    key_type: int = 0

    api = ApiKey.FIND_COORDINATOR
    response = FindCoordinatorResponse


# --- offsets -----------------------------------------------------------------------------------------


@frozen
class OffsetCommitPartition(Message):
    """The offset to read next, the leader epoch of the record before it (−1: not known), and the user's metadata."""

    topic: str
    partition: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str = ""


@frozen
class CommittedPartition(Message):
    """The outcome for one partition; `error_message` says why it was rejected."""

    topic: str
    partition: int
    error_code: int
    error_message: str | None = field(default=None, metadata=since(1))


@frozen
class OffsetCommitResponse(Response):
    """The answer, with one entry for each partition of the request, in order."""

    partitions: tuple[CommittedPartition, ...]


@frozen
class OffsetCommitRequest(Request):
    """Commits offsets with the coordinator; with `in_zookeeper` any broker commits to ZooKeeper (Kafka's version 0)."""

    group_id: str
    partitions: tuple[OffsetCommitPartition, ...]
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    in_zookeeper: bool = False

    api = ApiKey.OFFSET_COMMIT
    response = OffsetCommitResponse
    versions = (0, 1)


@frozen
class OffsetFetchPartition(Message):
    """The committed offset of one partition; `committed_offset` is −1 if there is none."""

    topic: str
    partition: int
    error_code: int
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str = ""


@frozen
class OffsetFetchResponse(Response):
    """The answer: the partitions of the request in order, or all that have an offset if the request names none."""

    error_code: int
    partitions: tuple[OffsetFetchPartition, ...] = ()


@frozen
class OffsetFetchRequest(Request):
    """Fetches committed offsets from the same broker as `OffsetCommitRequest`. `partitions` None asks for all."""

    group_id: str
    partitions: tuple[DescribePartition, ...] | None = None
    in_zookeeper: bool = False

    api = ApiKey.OFFSET_FETCH
    response = OffsetFetchResponse


@frozen
class OffsetDeleteResponse(Response):
    """The answer, with one entry for each partition of the request, in order."""

    error_code: int
    partitions: tuple[CommittedPartition, ...] = ()


@frozen
class OffsetDeleteRequest(Request):
    """Deletes committed offsets of topics to which no member is subscribed (KIP-496)."""

    group_id: str
    partitions: tuple[DescribePartition, ...]

    api = ApiKey.OFFSET_DELETE
    response = OffsetDeleteResponse
    versions = (0, 1)


# --- membership --------------------------------------------------------------------------------------


@frozen
class JoinGroupProtocol(Message):
    """An assignment strategy that the member supports; `metadata` is its subscription."""

    name: str
    metadata: bytes


@frozen
class JoinGroupMember(Message):
    """A member as the group's leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen
class JoinGroupResponse(Response):
    """The answer when a generation begins. With MEMBER_ID_REQUIRED, `member_id` is the id with which to join again.

    members           all members; only the group's leader gets them
    skip_assignment   the leader must not change the assignment (KIP-814)
    """

    error_code: int
    generation_id: int = -1
    protocol_type: str = ""
    protocol_name: str = ""
    leader: str = ""
    member_id: str = ""
    members: tuple[JoinGroupMember, ...] = ()
    skip_assignment: bool = False


@frozen
class JoinGroupRequest(Request):
    """Joins the next generation; answered when it begins. `protocols` are in the order of preference."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: tuple[JoinGroupProtocol, ...]

    api = ApiKey.JOIN_GROUP
    response = JoinGroupResponse


@frozen
class SyncGroupAssignment(Message):
    """The leader's assignment for one member."""

    member_id: str
    assignment: bytes


@frozen
class SyncGroupResponse(Response):
    """The assignment of this member."""

    error_code: int
    protocol_type: str = ""
    protocol_name: str = ""
    assignment: bytes = b""


@frozen
class SyncGroupRequest(Request):
    """Requests the member's assignment; the leader's request brings all assignments, and the others wait for it."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncGroupAssignment, ...] = ()

    api = ApiKey.SYNC_GROUP
    response = SyncGroupResponse


@frozen
class HeartbeatResponse(Response):
    """The answer; REBALANCE_IN_PROGRESS means that the member must join again."""

    error_code: int


@frozen
class HeartbeatRequest(Request):
    """Proves that the member is alive."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None

    api = ApiKey.HEARTBEAT
    response = HeartbeatResponse


@frozen
class LeavingMember(Message):
    """A member that leaves; a static member may be named by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None


@frozen
class LeftMember(Message):
    """The outcome for one member."""

    member_id: str
    group_instance_id: str | None
    error_code: int


@frozen
class LeaveGroupResponse(Response):
    """The answer, with one entry for each member of the request, in order."""

    error_code: int
    members: tuple[LeftMember, ...] = ()


@frozen
class LeaveGroupRequest(Request):
    """Removes members at once, instead of after their session timeout."""

    group_id: str
    members: tuple[LeavingMember, ...]

    api = ApiKey.LEAVE_GROUP
    response = LeaveGroupResponse


# --- administration ----------------------------------------------------------------------------------


class MemberStage(StrEnum):
    """The progress of a member in the rebalance, as the coordinator knows it."""

    #: The member has received its partitions.
    ASSIGNED = "Assigned"
    #: The member has sent its request, and waits for other members.
    WAITING = "Waiting"
    #: The coordinator waits for this member's next request: JoinGroup or SyncGroup.
    AWAITED = "Awaited"


@frozen
class DescribedMember(Message):
    """A member; `metadata` and `assignment` have the form of the group's protocol, `stage` is a MemberStage or ""."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    stage: str = field(default="", metadata=since(1))


@frozen
class DescribedGroup(Message):
    """A group; `state` is Dead if there is no group of this name.

    `pending_member_ids` are ids that the coordinator assigned to consumers which have not joined with them (KIP-394).
    """

    group_id: str
    error_code: int
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
    pending_member_ids: tuple[str, ...] = field(default=(), metadata=since(1))


@frozen
class DescribeGroupsResponse(Response):
    """The answer, with one entry for each group of the request, in order."""

    groups: tuple[DescribedGroup, ...]


@frozen
class DescribeGroupsRequest(Request):
    """Describes groups; sent to their coordinator."""

    groups: tuple[str, ...]

    api = ApiKey.DESCRIBE_GROUPS
    response = DescribeGroupsResponse
    versions = (0, 1)


@frozen
class ListedGroup(Message):
    """A group that the broker coordinates."""

    group_id: str
    protocol_type: str
    state: str


@frozen
class ListGroupsResponse(Response):
    """The groups of the answering broker."""

    error_code: int
    groups: tuple[ListedGroup, ...] = ()


@frozen
class ListGroupsRequest(Request):
    """Lists groups; sent to each broker. Empty `states` ask for all (KIP-518).

    With `in_zookeeper` any broker answers with the groups that have offsets in ZooKeeper, without further details.
    """

    states: tuple[str, ...] = ()
    in_zookeeper: bool = False

    api = ApiKey.LIST_GROUPS
    response = ListGroupsResponse


@frozen
class DeletedGroup(Message):
    """The outcome for one group."""

    group_id: str
    error_code: int


@frozen
class DeleteGroupsResponse(Response):
    """The answer, with one entry for each group of the request, in order."""

    groups: tuple[DeletedGroup, ...]


@frozen
class DeleteGroupsRequest(Request):
    """Deletes groups without members and their committed offsets; sent to their coordinator."""

    groups: tuple[str, ...]

    api = ApiKey.DELETE_GROUPS
    response = DeleteGroupsResponse


#: The requests about groups that any client may send.
GROUP_REQUESTS: tuple[type[Request], ...] = (
    FindCoordinatorRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetDeleteRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    DeleteGroupsRequest,
)

"""What consumer groups and their tools ask of a coordinator. Messages as in `tidelog.protocol.messages`.

`generation_id` and `member_id` are −1 and empty from who is no member; `group_instance_id` is a static member's
(KIP-345). What members tell one another is bytes that no broker reads (`tidelog.groups.assignment.consumer_protocol`).
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from tidelog.frozen_dataclass import frozen, since
from tidelog.protocol.messages import ApiKey, DescribePartition, Message, Request, Response

# --- FindCoordinator ---------------------------------------------------------------------------------


@frozen
class Coordinator(Message):
    """Who coordinates one group."""

    key: str
    error_code: int
    broker_id: int = -1
    host: str = ""
    port: int = -1
    error_message: str | None = None


@frozen
class FindCoordinatorResponse(Response):
    """One entry for each key of the request, in its order."""

    coordinators: tuple[Coordinator, ...]


@frozen
class FindCoordinatorRequest(Request):
    """To any broker. The first one that asks has the offsets topic made; `key_type` 0 is a group."""

    keys: tuple[str, ...]
    key_type: int = 0

    api = ApiKey.FIND_COORDINATOR
    response = FindCoordinatorResponse


# --- offsets -----------------------------------------------------------------------------------------


@frozen
class OffsetCommitPartition(Message):
    """What to remember: the offset to read next, the epoch of the record before it (−1: not known), and a note."""

    topic: str
    partition: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str = ""


@frozen
class CommittedPartition(Message):
    """The outcome for one partition; `error_message` says why it was refused."""

    topic: str
    partition: int
    error_code: int
    error_message: str | None = field(default=None, metadata=since(1))


@frozen
class OffsetCommitResponse(Response):
    """One entry for each partition of the request, in its order."""

    partitions: tuple[CommittedPartition, ...]


@frozen
class OffsetCommitRequest(Request):
    """To the coordinator; with `in_zookeeper` to any broker, and into ZooKeeper (Kafka's version 0)."""

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
    """`committed_offset` is −1 where nothing is committed."""

    topic: str
    partition: int
    error_code: int
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str = ""


@frozen
class OffsetFetchResponse(Response):
    """One entry for each partition of the request, in its order; all that have an offset, where it named none."""

    error_code: int
    partitions: tuple[OffsetFetchPartition, ...] = ()


@frozen
class OffsetFetchRequest(Request):
    """To the coordinator, or as `OffsetCommitRequest` says. `partitions` None asks for all of the group."""

    group_id: str
    partitions: tuple[DescribePartition, ...] | None = None
    in_zookeeper: bool = False

    api = ApiKey.OFFSET_FETCH
    response = OffsetFetchResponse


@frozen
class OffsetDeleteResponse(Response):
    """One entry for each partition of the request, in its order."""

    error_code: int
    partitions: tuple[CommittedPartition, ...] = ()


@frozen
class OffsetDeleteRequest(Request):
    """Forget offsets of topics that no member is subscribed to (KIP-496)."""

    group_id: str
    partitions: tuple[DescribePartition, ...]

    api = ApiKey.OFFSET_DELETE
    response = OffsetDeleteResponse
    versions = (0, 1)


# --- membership --------------------------------------------------------------------------------------


@frozen
class JoinGroupProtocol(Message):
    """A way to be assigned partitions that the member understands; `metadata` is its subscription."""

    name: str
    metadata: bytes


@frozen
class JoinGroupMember(Message):
    """A member, as its leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen
class JoinGroupResponse(Response):
    """A generation has begun. With MEMBER_ID_REQUIRED `member_id` is what to come back with.

    members           of all, to the leader alone
    skip_assignment   the leader is to leave the assignment as it stands (KIP-814)
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
    """To be in the next generation; answered when it begins. `protocols` are in the order of preference."""

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
    """What the leader gives to one member."""

    member_id: str
    assignment: bytes


@frozen
class SyncGroupResponse(Response):
    """What the leader gave to this member."""

    error_code: int
    protocol_type: str = ""
    protocol_name: str = ""
    assignment: bytes = b""


@frozen
class SyncGroupRequest(Request):
    """To learn one's assignment; the leader's brings everybody's, and the others wait for it."""

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
    """REBALANCE_IN_PROGRESS: join again."""

    error_code: int


@frozen
class HeartbeatRequest(Request):
    """A member lives."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None

    api = ApiKey.HEARTBEAT
    response = HeartbeatResponse


@frozen
class LeavingMember(Message):
    """Who goes; a static member may be named by its instance id alone."""

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
    """One entry for each member of the request, in its order."""

    error_code: int
    members: tuple[LeftMember, ...] = ()


@frozen
class LeaveGroupRequest(Request):
    """Members that do not wait until they are missed."""

    group_id: str
    members: tuple[LeavingMember, ...]

    api = ApiKey.LEAVE_GROUP
    response = LeaveGroupResponse


# --- administration ----------------------------------------------------------------------------------


class MemberStage(StrEnum):
    """How far a member is in the rebalance, as far as the coordinator knows."""

    #: The member has received its partitions.
    ASSIGNED = "Assigned"
    #: The member has sent its request, and waits for other members.
    WAITING = "Waiting"
    #: The coordinator waits for this member's next request: JoinGroup or SyncGroup.
    AWAITED = "Awaited"


@frozen
class DescribedMember(Message):
    """A member; `metadata` and `assignment` are in the group's protocol's own form, `stage` is a MemberStage or ""."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    stage: str = field(default="", metadata=since(1))


@frozen
class DescribedGroup(Message):
    """A group; `state` is Dead where there is none of this name.

    `pending_member_ids` are those that the coordinator gave to consumers which have not joined with them yet (KIP-394).
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
    """One entry for each group of the request, in its order."""

    groups: tuple[DescribedGroup, ...]


@frozen
class DescribeGroupsRequest(Request):
    """To the groups' coordinator."""

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
    """Of the answering broker alone."""

    error_code: int
    groups: tuple[ListedGroup, ...] = ()


@frozen
class ListGroupsRequest(Request):
    """To each broker. `states` empty asks for all (KIP-518).

    With `in_zookeeper` to any broker: the groups that have offsets in ZooKeeper, of which no more than that is known.
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
    """One entry for each group of the request, in its order."""

    groups: tuple[DeletedGroup, ...]


@frozen
class DeleteGroupsRequest(Request):
    """To the groups' coordinator: forget groups without members, and what they have committed."""

    groups: tuple[str, ...]

    api = ApiKey.DELETE_GROUPS
    response = DeleteGroupsResponse


#: What any client may ask about groups.
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

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
    """The coordinator of the group `key`, at its address on the listener of the request; or an error.

    `epoch` is the leader epoch of the group's partition of `__consumer_offsets`, in which the broker coordinates the
    group; −1: not known.
    """

    key: str
    error_code: int
    broker_id: int = -1
    host: str = ""
    port: int = -1
    error_message: str | None = None
    epoch: int = field(default=-1, metadata=since(1))


@frozen
class FindCoordinatorResponse(Response):
    """The answer, with one entry for each key of the request, in order."""

    coordinators: tuple[Coordinator, ...]


@frozen
class FindCoordinatorRequest(Request):
    """Finds the coordinators of groups; any broker answers. `key_type` 0 means groups, the only supported kind.

    If the offsets topic does not exist, the request starts its creation, and gets COORDINATOR_NOT_AVAILABLE until then.
    """

    keys: tuple[str, ...]
    key_type: int = 0

    api = ApiKey.FIND_COORDINATOR
    response = FindCoordinatorResponse
    versions = (0, 1)


# --- offsets -----------------------------------------------------------------------------------------


@frozen
class OffsetCommitPartition(Message):
    """One offset to commit.

    committed_offset         the offset of the next record to read
    committed_leader_epoch   the leader epoch of the record before it; −1: not known
    committed_metadata       any text of the user
    commit_timestamp_ms      the time of the commit, from which its retention counts; −1: the coordinator's time
    """

    topic: str
    partition: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str = ""
    commit_timestamp_ms: int = field(default=-1, metadata=since(2))


@frozen
class CommittedPartition(Message):
    """The outcome for one partition of a commit or a deletion of offsets.

    `error_message` says why the partition was rejected; None without an error, or if the error code says enough.
    """

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
    """Commits offsets of a group; sent to its coordinator, which answers when the ISR has the commit.

    If a partition occurs twice, its last entry counts. Unless members consume its topic, an offset expires
    `retention_ms` after the request, and is kept without its leader epoch; −1: it expires by the broker's setting.
    With `in_zookeeper`, any broker commits to ZooKeeper instead (Kafka's version 0), and keeps only the offset.

    A client that repeats commits which got no answer sends the last three fields in each commit, so that a copy that
    the network has delayed cannot overwrite a later commit.

    committer_id        a random name of the sender's sequence of commits, with at most 64 characters; "": the
                        coordinator does not compare commits
    sequence            grows from commit to commit of this committer; a repeated commit keeps its number
    coordinator_epoch   the epoch in which the coordinator was found; another one gets NOT_COORDINATOR; −1: any epoch
    """

    group_id: str
    partitions: tuple[OffsetCommitPartition, ...]
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    in_zookeeper: bool = False
    retention_ms: int = field(default=-1, metadata=since(2))
    committer_id: str = field(default="", metadata=since(3))
    sequence: int = field(default=-1, metadata=since(3))
    coordinator_epoch: int = field(default=-1, metadata=since(3))

    api = ApiKey.OFFSET_COMMIT
    response = OffsetCommitResponse
    versions = (0, 3)


@frozen
class OffsetFetchPartition(Message):
    """The committed offset of one partition; −1 without an error if there is none."""

    topic: str
    partition: int
    error_code: int
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str = ""


@frozen
class OffsetFetchResponse(Response):
    """The answer: the partitions of the request in order, or all with an offset if the request has `partitions` None.

    A non-zero `error_code` rejects the request as a whole; then there are no entries.
    """

    error_code: int
    partitions: tuple[OffsetFetchPartition, ...] = ()


@frozen
class OffsetFetchRequest(Request):
    """Fetches a group's committed offsets; sent to its coordinator, or with `in_zookeeper` to any broker.

    `partitions` None asks for all partitions with an offset. For a coordinator, offsets of deleted topics count as not
    committed; with `in_zookeeper` they come with an error.
    """

    group_id: str
    partitions: tuple[DescribePartition, ...] | None = None
    in_zookeeper: bool = False

    api = ApiKey.OFFSET_FETCH
    response = OffsetFetchResponse


@frozen
class OffsetDeleteResponse(Response):
    """The answer, with one entry for each partition of the request, in order.

    A non-zero `error_code` rejects the request as a whole; then there are no entries.
    """

    error_code: int
    partitions: tuple[CommittedPartition, ...] = ()


@frozen
class OffsetDeleteRequest(Request):
    """Deletes committed offsets (KIP-496); sent to the coordinator, which answers when the ISR has the tombstones.

    A partition of a topic to which a member is subscribed gets GROUP_SUBSCRIBED_TO_TOPIC, and keeps its offset. During
    a rebalance every partition does. A group with members of another type than "consumer" gets NON_EMPTY_GROUP.
    """

    group_id: str
    partitions: tuple[DescribePartition, ...]

    api = ApiKey.OFFSET_DELETE
    response = OffsetDeleteResponse
    versions = (0, 1)


# --- membership --------------------------------------------------------------------------------------


@frozen
class JoinGroupProtocol(Message):
    """An assignment strategy that the member supports; `metadata` is the member's subscription for this strategy."""

    name: str
    metadata: bytes


@frozen
class JoinGroupMember(Message):
    """A member as the group's leader sees it; `metadata` is its subscription for the chosen strategy."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen
class JoinGroupResponse(Response):
    """The answer when a generation begins. With MEMBER_ID_REQUIRED, `member_id` is the id with which to join again.

    protocol_name     the assignment strategy of this generation
    leader            the member id of the group's leader
    members           all members of the generation; empty for members other than the leader
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
    """Joins the next generation of a group; the coordinator answers when that generation begins.

    The coordinator begins no generation for a member whose last answer was lost, nor for a static member that returns
    to a stable group whose protocol stays.

    A new member sends "" as `member_id`; a dynamic one gets MEMBER_ID_REQUIRED, and joins again with the id that it
    gets (KIP-394). `protocols` are in the member's order of preference. A negative `rebalance_timeout_ms` means the
    session timeout.

    can_join_again        the client understands MEMBER_ID_REQUIRED; else a new member joins at once
    can_skip_assignment   the client understands `skip_assignment`; else a static leader that joins again is told that
                          it does not lead, so that it assigns nothing
    """

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: tuple[JoinGroupProtocol, ...]
    can_join_again: bool = field(default=True, metadata=since(1))
    can_skip_assignment: bool = field(default=True, metadata=since(1))

    api = ApiKey.JOIN_GROUP
    response = JoinGroupResponse
    versions = (0, 1)


@frozen
class SyncGroupAssignment(Message):
    """The assignment that the group's leader has made for one member, in the form of the group's protocol."""

    member_id: str
    assignment: bytes


@frozen
class SyncGroupResponse(Response):
    """The assignment of the member that sent the request, in the form of the group's protocol."""

    error_code: int
    protocol_type: str = ""
    protocol_name: str = ""
    assignment: bytes = b""


@frozen
class SyncGroupRequest(Request):
    """Requests the member's assignment in this generation.

    The leader's request brings the assignments of all members; all answers come when the coordinator has written them.
    In a stable group the answer comes at once.
    """

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
    """The answer. With 0 and with REBALANCE_IN_PROGRESS the session is renewed.

    REBALANCE_IN_PROGRESS means that the member must join again.
    """

    error_code: int


@frozen
class HeartbeatRequest(Request):
    """Proves to the coordinator that the member is alive, and asks whether a rebalance has begun."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None

    api = ApiKey.HEARTBEAT
    response = HeartbeatResponse


@frozen
class LeavingMember(Message):
    """A member that leaves; a static member may be named by its instance id alone, with "" as `member_id`."""

    member_id: str
    group_instance_id: str | None = None


@frozen
class LeftMember(Message):
    """The outcome for one member, named as in the request; UNKNOWN_MEMBER_ID if the group does not have it."""

    member_id: str
    group_instance_id: str | None
    error_code: int


@frozen
class LeaveGroupResponse(Response):
    """The answer, with one entry for each member of the request, in order.

    A non-zero `error_code` rejects the request as a whole; then there are no entries.
    """

    error_code: int
    members: tuple[LeftMember, ...] = ()


@frozen
class LeaveGroupRequest(Request):
    """Removes members at once, instead of after their session timeout; any client may send it for any member."""

    group_id: str
    members: tuple[LeavingMember, ...]

    api = ApiKey.LEAVE_GROUP
    response = LeaveGroupResponse


# --- administration ----------------------------------------------------------------------------------


class MemberStage(StrEnum):
    """How far a member is in the rebalance, as the coordinator knows it."""

    #: No rebalance is in progress; the member has its partitions.
    ASSIGNED = "Assigned"
    #: The member has sent its JoinGroup or SyncGroup request, and waits for other members.
    WAITING = "Waiting"
    #: The coordinator waits for this member's next request: JoinGroup or SyncGroup.
    AWAITED = "Awaited"


@frozen
class DescribedMember(Message):
    """A member. `metadata` and `assignment` have the form of the group's protocol; empty unless the group is Stable.

    `stage` is a MemberStage; "" from brokers of version 0.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    stage: str = field(default="", metadata=since(1))


@frozen
class DescribedGroup(Message):
    """A group, or the error why the broker cannot describe it. `state` is Dead if there is no group of this name.

    `protocol` is the chosen assignment strategy; "" unless the state is Stable. `pending_member_ids` are ids that the
    coordinator assigned to consumers which have not joined with them (KIP-394).
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
    """Describes groups; sent to their coordinator. A group of another coordinator gets NOT_COORDINATOR."""

    groups: tuple[str, ...]

    api = ApiKey.DESCRIBE_GROUPS
    response = DescribeGroupsResponse
    versions = (0, 1)


@frozen
class ListedGroup(Message):
    """A group that the broker coordinates; `protocol_type` and `state` are "" for a group of ZooKeeper."""

    group_id: str
    protocol_type: str
    state: str


@frozen
class ListGroupsResponse(Response):
    """The groups that the answering broker coordinates; an error means that `groups` may not be complete."""

    error_code: int
    groups: tuple[ListedGroup, ...] = ()


@frozen
class ListGroupsRequest(Request):
    """Lists the groups that the addressed broker coordinates; empty `states` ask for groups in any state (KIP-518).

    With `in_zookeeper`, any broker lists the groups that have offsets in ZooKeeper, and `states` is ignored.
    """

    states: tuple[str, ...] = ()
    in_zookeeper: bool = False

    api = ApiKey.LIST_GROUPS
    response = ListGroupsResponse


@frozen
class DeletedGroup(Message):
    """The outcome for one group: NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if it does not exist."""

    group_id: str
    error_code: int


@frozen
class DeleteGroupsResponse(Response):
    """The answer, with one entry for each group of the request, in order."""

    groups: tuple[DeletedGroup, ...]


@frozen
class DeleteGroupsRequest(Request):
    """Deletes groups without members and their committed offsets; sent to their coordinator.

    The answer comes when the ISR has all tombstones.
    """

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
